"""What edits need to know of a document: its lines, colons, aliases and own entries, and when values are the same."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ..document import Document
    from ..node import Entry, Node

_BREAK = re.compile(r"\r\n?|\n")
_COLON = re.compile(r"[ \t]*:")
_ALIAS = re.compile(r"[ \t]*:[ \t]+(\*[^\s,\[\]{}]+)")


class EditError(Exception):
    """The edit cannot be made without touching more than it may, or would not read back as intended."""


VALUE, CONTENT = 1 << 21, 1 << 20
"""Ranks of a value put behind its colon, and of lines that follow it: both before any new sibling."""


class Piece(NamedTuple):
    """A replacement of `start`..`end`. Of insertions at one place, the higher `rank` comes first."""

    start: int
    end: int
    text: str
    rank: int = 0


def own(mapping: Node) -> list[Entry]:
    """The entries that a mapping itself holds, without merged ones."""
    return mapping.entries()[mapping.merged :]


def is_alias(entry: Entry) -> bool:
    """Whether an entry's value is an alias: its node stands before its key."""
    return entry.value.span.start < entry.key.span.end


def value_bounds(document: Document, entry: Entry) -> tuple[int, int]:
    """Where an entry's value is written; for an alias that is the alias itself."""
    if not is_alias(entry):
        return entry.value.span.start, entry.value.span.end
    match = _ALIAS.match(document.text, entry.key.span.end)
    if match is None:
        raise EditError("the value is an alias on another line than its key")
    return match.start(1), match.end(1)


def after_colon(document: Document, entry: Entry) -> int | None:
    """The offset behind the colon of an entry; None where it has none."""
    match = _COLON.match(document.text, entry.key.span.end)
    return match.end() if match else None


def line_start(text: str, offset: int) -> int:
    """Where the line of an offset starts."""
    start = max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1
    return start or int(text.startswith("\ufeff"))


def line_end(text: str, offset: int) -> int:
    """Where the line of an offset ends, before its break."""
    match = _BREAK.search(text, offset)
    return match.start() if match else len(text)


def line_break(text: str, offset: int = 0) -> str:
    r"""The break that ends the line of an offset; on a last line without one, the first of the file, or `\n`."""
    match = _BREAK.search(text, offset) or _BREAK.search(text)
    return match[0] if match else "\n"


def margin(text: str, offset: int) -> str:
    """The blanks that the line of an offset starts with."""
    start = line_start(text, offset)
    line = text[start : line_end(text, start)]
    return line[: len(line) - len(line.lstrip(" \t"))]


def starts_line(text: str, offset: int) -> bool:
    """Whether only blanks stand before an offset on its line."""
    return not text[line_start(text, offset) : offset].strip(" \t")


def same(one: Any, other: Any) -> bool:
    """Whether two plain values are equal in every type too: 1, 1.0 and true all differ."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return len(one) == len(other) and all(name in other and same(item, other[name]) for name, item in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other or (one != one and other != other))


def unshared(value: Any) -> Any:
    """A copy that shares nothing, not even what aliases share."""
    if isinstance(value, dict):
        return {name: unshared(item) for name, item in value.items()}
    if isinstance(value, list):
        return [unshared(item) for item in value]
    return value
