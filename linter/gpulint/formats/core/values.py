"""The words that a key takes: those of its schema, and those of `values.json`, which upstream checks elsewhere; and
the numbers, where upstream checks them when it starts (`bounds.json`).

Where plugins and forks add words of their own, only a word that is nearly a known one is told, as `misspelt`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ...source.tables import read_table
from .coercion import as_boolean, as_number, listed
from .typos import nearest_word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...source.node import Node

FOLDED = "accelerate"
"""The tool that takes its words in capitals or not (`PrecisionType(str(value).lower())`, `from_str`)."""


class Words(NamedTuple):
    """The words of a key; `closed` where no other can be right."""

    known: tuple[str, ...]
    closed: bool


def wrong_value(
    schema: str, dotted: str, shapes: Sequence[dict[str, Any]], node: Node, *, extended: bool, strict: bool = False
) -> dict[str, str] | None:
    """What is wrong with a text that is not among the words of its key; None where nothing is known to be.

    `dotted` is the place of the key in the schema; `extended` says that the config loads plugins that may add words,
    `strict` that a word besides is taken for a truth value or a number only where it is one.
    The values are `expected`, `found`, `suggestion` (the word that was probably meant) and `treatment`: `refused`, or
    `misspelt` where other words may be right.
    """
    if not isinstance(node.value, str):
        return None
    key = dotted.replace("-", "_")
    text = node.value
    words = _words(schema, key, shapes, strict=strict and as_boolean(text) is None and as_number(text) is None)
    other = _table()["others"].get(schema, {}).get(key)
    if words is None or text in words.known or (other and other in text):
        return None
    folded = {word.lower(): word for word in words.known}
    if text.lower() in folded and (schema == FOLDED or key not in _table()["keys"].get(schema, {})):
        return None
    suggestion = folded.get(text.lower()) or nearest_word(text, words.known)
    if not suggestion and (extended or not words.closed):
        return None
    closed = words.closed and not extended
    first = [suggestion] if suggestion else []
    known_words = [*first, *(word for word in words.known if word != suggestion)]
    return {
        "expected": listed(known_words),
        "found": node.raw or text,
        "suggestion": suggestion,
        "treatment": "refused" if closed else "misspelt",
    }


def former_value(schema: str, dotted: str, node: Node) -> dict[str, str] | None:
    """What is to stand for a word that a tool took once and stops at now, and the first release that stops at it."""
    for row in _table()["former"].get(schema, {}).get(dotted, ()):
        if isinstance(node.value, str) and node.value.startswith(row["starts"]):
            empty = {"replacement": "", "spelling": "", "treatment": "refused", "stated": "no"}
            return {**empty, "instead": row["instead"], "reason": f"taken before {row['until']}"}
    return None


def _words(schema: str, key: str, shapes: Sequence[dict[str, Any]], *, strict: bool) -> Words | None:
    table = _table()
    sets = table["keys"].get(schema, {}).get(key)
    if sets:
        known = tuple(dict.fromkeys(word for name in sets for word in table["sets"][name]))
        return Words(known, key not in table["open"].get(schema, ()))
    listed = [item for shape in shapes for item in shape.get("enum", ()) if item is not None]
    if not listed or not all(isinstance(item, str) for item in listed):
        return None
    others = ("null", "boolean", "integer", "number") if strict else ("null",)
    return Words(tuple(dict.fromkeys(listed)), all("enum" in shape or shape.get("type") in others for shape in shapes))


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = read_table(__file__, "values.json")
    return table


class Bounds(NamedTuple):
    """`least` and `most` are taken, `above` and `below` are not; `only` are numbers that are taken besides."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    only: tuple[float, ...] = ()
    below: float | None = None

    def holds(self, number: float) -> bool:
        """Whether the number is taken; infinity and what is no number are not."""
        if number in self.only:
            return True
        low = (self.least is None or number >= self.least) and (self.above is None or number > self.above)
        high = (self.most is None or number <= self.most) and (self.below is None or number < self.below)
        return low and high and number < float("inf")

    def __str__(self) -> str:
        parts = [
            *([f"from {self.least:g}"] if self.least is not None else []),
            *([f"above {self.above:g}"] if self.above is not None else []),
            *([f"up to {self.most:g}"] if self.most is not None else []),
            *([f"below {self.below:g}"] if self.below is not None else []),
        ]
        return f"a number {' '.join(parts)}" + "".join(f", or {number:g}" for number in self.only)


def out_of_bounds(schema: str, dotted: str, node: Node) -> dict[str, str] | None:
    """What is wrong with a number that upstream refuses for its key; None where nothing is known to be."""
    bounds = _bounds().get(schema, {}).get(dotted.replace("-", "_"))
    if bounds is None or isinstance(node.value, bool):
        return None
    number = as_number(node.value)
    if number is None or bounds.holds(number):
        return None
    return {"expected": str(bounds), "found": node.raw or str(node.value)}


@cache
def _bounds() -> dict[str, dict[str, Bounds]]:
    """Schema -> key -> its bounds."""
    found: dict[str, dict[str, Bounds]] = {}
    rows: dict[str, list[dict[str, Any]]] = read_table(__file__, "bounds.json")["bounds"]
    for schema, groups in rows.items():
        for row in groups:
            only = tuple(row.get("only", ()))
            bounds = Bounds(row.get("least"), row.get("above"), row.get("most"), only, row.get("below"))
            found.setdefault(schema, {}).update(dict.fromkeys(row["keys"], bounds))
    return found
