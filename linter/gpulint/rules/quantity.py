"""Units of facts: what an expression's result is counted in, and how it is written for people.

Units are `bytes`, `parameters`, `tokens`, `percent`, `capability` and "" for all else. Bytes never mix with plain
numbers except 0: `gpu.usable > 80` is an error at load that `80 * GiB` cures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..units import bytes_text, count_text
from .expression import is_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from .expression import Tree

CONSTANTS: dict[str, int] = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
"""Facts that are plain byte counts, for literals such as `80 * GiB`."""

MAX_TEXT = 160
"""Characters of a config's own text that a message quotes."""

MAX_SENTENCE = 400
"""Characters of a sentence, which often has what it is read for at its end: "did you mean ..."."""


class UnitError(Exception):
    """An expression that adds or compares bytes with something else: with `tree`."""

    def __init__(self, reason: str, tree: Tree) -> None:
        super().__init__(reason)
        self.tree = tree


def unit_of(tree: Tree, unit_of_fact: Callable[[str], str]) -> str:
    """The unit of an expression's result; raises UnitError where bytes meet a plain number."""
    return _unit(tree, unit_of_fact)


def _unit(tree: Tree, lookup: Callable[[str], str]) -> str:
    operation = tree[0]
    if operation == "fact":
        return "bytes" if tree[1] in CONSTANTS else lookup(tree[1])
    if operation == "peak_if":
        return "bytes"
    if operation in ("const", "has"):
        return ""
    if operation == "call":
        units = [_unit(part, lookup) for part in tree[2:]]
        return _agreed(units, tree[2:]) if tree[1] in ("min", "max", "default") else _kept(tree[1], units)
    parts = [part for part in tree[1:] if isinstance(part, list)]
    units = [_unit(part, lookup) for part in parts]
    if operation in ("+", "-", "%"):
        return _agreed(units, parts)
    if operation == "*":
        return next((unit for unit in units if unit), "")
    if operation in ("/", "//"):
        return "" if units[0] == units[1] else units[0]
    if operation in ("<", "<=", ">", ">=", "==", "!="):
        _agreed(units, parts)
        return ""
    if operation == "if":
        return _agreed(units[1:], parts[1:])
    return units[0] if operation == "neg" else ""


def _kept(function: str, units: list[str]) -> str:
    return units[0] if function in ("ceil", "floor", "number") else ""


def _agreed(units: list[str], parts: list[Tree]) -> str:
    named = {unit for unit, part in zip(units, parts, strict=True) if part[0] != "const" or part[1] not in (0, None)}
    if "bytes" in named and len(named) > 1:
        other = min(named - {"bytes"})
        raise UnitError(
            f"bytes and {other or 'a plain number'} do not mix; write sizes as 80 * GiB",
            parts[units.index(other)],
        )
    return next((unit for unit in units if unit), "")


def text_of(value: Any, unit: str) -> str:
    """A value as messages print it: `59.8 GiB`, `8.03 B`, `8,192`, `0.9`, `null`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if is_number(value):
        return _number_text(value, unit)
    if isinstance(value, list | tuple):
        return clipped(", ".join(text_of(item, unit) for item in value))
    text = str(value)
    return clipped(text, MAX_SENTENCE if "; " in text else MAX_TEXT)


def _number_text(value: float, unit: str) -> str:
    if unit == "bytes":
        return bytes_text(value)
    if unit == "parameters":
        return count_text(value)
    if unit == "percent":
        return f"{value:.0%}"
    if unit == "capability":
        return f"{value:.1f}"
    if isinstance(value, int) or (value == int(value) and abs(value) >= 1):
        return f"{int(value):,}"
    return f"{value:.3g}"


def clipped(text: str, most: int = MAX_TEXT) -> str:
    """At most `most` characters of a config's own text."""
    return text if len(text) <= most else text[: most - 1] + "…"
