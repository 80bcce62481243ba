"""Edits of mappings in braces: JSON objects and YAML flow mappings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .edit_text import (
    VALUE,
    EditError,
    Piece,
    after_colon,
    line_break,
    line_start,
    margin,
    own,
    starts_line,
    value_bounds,
)

if TYPE_CHECKING:
    from ..document import Document
    from ..node import Entry, Node

_LINE_REST = re.compile(r"[ \t]*,[ \t]*(?:#[^\r\n]*)?(?:\r\n?|\n)")
_BLANKS_AFTER = re.compile(r"[ \t]*")


def insert(document: Document, mapping: Node, values: dict[str, Any], near: Entry | None) -> Piece:
    """New members behind the member `near`, spaced as the others are."""
    text = document.text
    entries = own(mapping)
    span = mapping.span
    if near is None:
        if text[span.start + 1 : span.end - 1].strip():
            raise EditError("an empty mapping with a comment in it")
        return Piece(span.start + 1, span.end - 1, _first(document, mapping, values))
    at = value_bounds(document, near)[1]
    first = entries[0].key.span.start
    indent = margin(text, first)
    if starts_line(text, first) and span.line < entries[0].key.span.line:
        between = "," + line_break(text, span.start) + indent
    else:
        between = "," + _gap(document, entries)
    colon = _colon(document, entries[-1])
    return Piece(at, at, "".join(between + member for member in _members(document, values, indent, colon)), span.start)


def replace(document: Document, entry: Entry, value: Any) -> list[Piece]:
    """Another value for a member."""
    start, end = value_bounds(document, entry)
    new = _value(document, value, margin(document.text, entry.key.span.start))
    if start < end:
        return [Piece(start, end, new)]
    colon = after_colon(document, entry)
    return [Piece(colon or end, end, f" {new}" if colon else f": {new}", VALUE)]


def remove(document: Document, mapping: Node, entries: list[Entry]) -> list[Piece]:
    """Take members out, each with one comma."""
    span = mapping.span
    siblings = own(mapping)
    gone = {id(entry.key) for entry in entries}
    kept = [index for index, entry in enumerate(siblings) if id(entry.key) not in gone]
    if not kept:
        if mapping.merged:
            raise EditError("the mapping has more than this key")
        _refuse_comment(document, siblings, 0, len(siblings))
        return [Piece(span.start + 1, span.end - 1, "")]
    last = kept[-1]
    pieces = []
    for index, entry in enumerate(siblings[:last]):
        if index in kept:
            continue
        lines = _own_lines(document, entry)
        if lines:
            pieces.append(lines)
        else:
            _refuse_comment(document, siblings, index, index + 1)
            pieces.append(Piece(entry.key.span.start, siblings[index + 1].key.span.start, ""))
    if last + 1 < len(siblings):
        _refuse_comment(document, siblings, last, len(siblings) - 1)
        ends = [value_bounds(document, siblings[index])[1] for index in (last, -1)]
        pieces.append(Piece(ends[0], ends[1], ""))
    return pieces


def _own_lines(document: Document, entry: Entry) -> Piece | None:
    """The deletion of the lines of a member that shares them with nothing but its comma and a comment."""
    text = document.text
    end = value_bounds(document, entry)[1]
    rest = _LINE_REST.match(text, end)
    if rest is None or not starts_line(text, entry.key.span.start):
        return None
    return Piece(line_start(text, entry.key.span.start), rest.end(), "")


def _refuse_comment(document: Document, siblings: list[Entry], first: int, last: int) -> None:
    """Raise EditError where a comment stands between two of these members."""
    if document.syntax == "json":
        return
    for entry, following in zip(siblings[first:last], siblings[first + 1 :], strict=False):
        if "#" in document.text[value_bounds(document, entry)[1] : following.key.span.start]:
            raise EditError("a comment is between the key and its neighbor")


def _first(document: Document, mapping: Node, values: dict[str, Any]) -> str:
    text = document.text
    indent = margin(text, mapping.span.start)
    if document.syntax == "json" and document.root.span.end_line > document.root.span.line:
        from .json_writer import step_of

        inner = indent + ("\t" if indent.startswith("\t") else " " * step_of(document.root))
        newline = line_break(text)
        members = _members(document, values, inner, ": ")
        return ",".join(newline + inner + member for member in members) + newline + indent
    return ", ".join(_members(document, values, indent, ": "))


def _members(document: Document, values: dict[str, Any], indent: str, colon: str) -> list[str]:
    return [f"{_key(document, name)}{colon}{_value(document, item, indent)}" for name, item in values.items()]


def _key(document: Document, name: str) -> str:
    if document.syntax == "json":
        import json

        return json.dumps(name, ensure_ascii=False)
    from .yaml_writer import key

    return key(name, flow=True)


def _value(document: Document, item: Any, indent: str) -> str:
    if document.syntax == "json":
        from .json_writer import value

        return value(item, document, indent)
    from .yaml_writer import flow

    return flow(item)


def _gap(document: Document, entries: list[Entry]) -> str:
    """The blanks behind a comma on one line: as between the first two members, else as behind the colon."""
    text = document.text
    if len(entries) > 1:
        gap = text[value_bounds(document, entries[0])[1] : entries[1].key.span.start]
        blanks = gap.partition(",")[2]
        return blanks if not blanks.strip(" \t") else " "
    return "" if _colon(document, entries[0]) == ":" and document.syntax == "json" else " "


def _colon(document: Document, entry: Entry) -> str:
    """The colon with the blanks around it, as in a member that is there."""
    after = after_colon(document, entry)
    if after is None or document.syntax != "json":
        return ": "
    blanks = _BLANKS_AFTER.match(document.text, after)
    return document.text[entry.key.span.end : blanks.end() if blanks else after]
