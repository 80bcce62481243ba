"""Python values as YAML text that PyYAML reads back as the same values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ..document import SourceError
from ..yaml.scalar import is_string

if TYPE_CHECKING:
    from ..node import Node

_SURELY_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0", "\x1b": "\\e"}
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\xa0\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_ESCAPED = re.compile(f'["\\\\]|{_UNPRINTABLE.pattern}')


class Style(NamedTuple):
    """How a file indents: `step` blanks a mapping level, `sequence` blanks before the dash of a list."""

    step: int = 2
    sequence: int = 2


def style_of(root: Node) -> Style:
    """The indentation of the first nested mapping and of the first list of a file, 2 where there is none."""
    found: dict[str, int] = {}
    waiting = [root]
    seen: set[int] = set()
    while waiting and len(found) < 2:
        node = waiting.pop(0)
        if id(node) in seen:
            continue
        seen.add(id(node))
        waiting.extend(node.items())
        for key, value in node.entries()[node.merged :]:
            waiting.append(value)
            if value.kind != "scalar" and value.span.line > key.span.line:
                found.setdefault(value.kind, value.span.column - key.span.column)
    step = found.get("mapping", 0) or found.get("sequence", 0)
    return Style(step if step > 0 else 2, max(found.get("sequence", step or 2), 0))


def scalar(value: Any, flow: bool = False) -> str:
    """A scalar, or an empty collection, on one line. Raises TypeError for anything else."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, str):
        return _string(value, "[{}]" if flow else "k: {}")
    if value in ([], {}):
        return "[]" if isinstance(value, list) else "{}"
    raise TypeError(f"{type(value).__name__} is not a YAML scalar")


def key(name: Any, flow: bool = False) -> str:
    """A mapping key."""
    if isinstance(name, str):
        return _string(name, "{{{}: 1}}" if flow else "{}: 1")
    return scalar(name, flow)


def flow(value: Any) -> str:
    """A value on one line, collections in brackets."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key(name, True)}: {flow(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return scalar(value, True)


def block(value: Any, indent: int, style: Style) -> list[str]:
    """The lines of a non-empty mapping or list in block style, from column `indent` (0-based)."""
    margin = " " * indent
    lines: list[str] = []
    if isinstance(value, dict):
        for name, item in value.items():
            if item and isinstance(item, dict | list):
                lines.append(f"{margin}{key(name)}:")
                lines += block(item, indent + (style.step if isinstance(item, dict) else style.sequence), style)
            else:
                lines.append(f"{margin}{key(name)}: {scalar(item)}")
        return lines
    for item in value:
        if item and isinstance(item, dict | list):
            first, *rest = block(item, indent + 2, style)
            lines += [f"{margin}- {first.lstrip(' ')}", *rest]
        else:
            lines.append(f"{margin}- {scalar(item)}")
    return lines


def _float(value: float) -> str:
    if value != value:
        return ".nan"
    if value in (float("inf"), float("-inf")):
        return ".inf" if value > 0 else "-.inf"
    text = repr(value)
    mantissa, exponent, power = text.partition("e")
    # PyYAML reads 1e-05 as a string: a float needs its point.
    return f"{mantissa}.0e{power}" if exponent and "." not in mantissa else text


def _string(text: str, frame: str) -> str:
    """Plain where PyYAML reads that back as the same string in its frame, else in quotes."""
    if _UNPRINTABLE.search(text):
        return '"' + _ESCAPED.sub(_escape, text) + '"'
    if is_string(text) and (_SURELY_PLAIN.fullmatch(text) or _reads_back(text, frame)):
        return text
    if '"' in text or "\\" in text:
        return "'" + text.replace("'", "''") + "'"
    return f'"{text}"'


def _reads_back(text: str, frame: str) -> bool:
    from ..yaml.reader import read_yaml

    try:
        document = read_yaml(frame.format(text), "")
    except SourceError:
        return False
    if document.comments or len(document.roots) > 1:
        return False
    return document.root.plain() in ({"k": text}, [text], {text: 1})


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    return _ESCAPES.get(char) or (f"\\x{ord(char):02x}" if char <= "\xff" else f"\\u{ord(char):04x}")
