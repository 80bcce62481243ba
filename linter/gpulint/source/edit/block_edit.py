"""Edits of YAML block mappings: whole lines come and go, the rest of the file stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import yaml_writer
from .edit_text import (
    CONTENT,
    VALUE,
    EditError,
    Piece,
    after_colon,
    is_alias,
    line_break,
    line_end,
    line_start,
    own,
    same,
    starts_line,
    value_bounds,
)

if TYPE_CHECKING:
    from ..document import Document
    from ..node import Entry, Node


def insert(document: Document, mapping: Node, values: dict[str, Any], near: Entry | None) -> Piece:
    """New lines behind the entry `near`, or behind what the mapping holds."""
    at = _entry_line_end(document, near) if near else line_end(document.text, mapping.span.end)
    indent = mapping.span.column - 1
    return _lines(document, at, at, yaml_writer.block(values, indent, _style(document)), rank=indent)


def fill(document: Document, values: dict[str, Any]) -> Piece:
    """The first keys of a file that holds none."""
    text = document.text
    lines = yaml_writer.block(values, 0, yaml_writer.DEFAULT_STYLE)
    newline = line_break(text)
    start = "" if not text or text[-1] in "\r\n\ufeff" else newline
    return Piece(len(text), len(text), start + newline.join(lines) + newline)


def replace(document: Document, entry: Entry, value: Any) -> list[Piece]:
    """Another value for an entry. A comment behind the old value stays on its line."""
    start, end = value_bounds(document, entry)
    colon = after_colon(document, entry)
    old = entry.value
    text = document.text
    is_block = old.kind != "scalar" and not is_alias(entry) and text[start] not in "[{"
    is_flow = old.kind != "scalar" and not is_alias(entry) and not is_block
    if is_block and colon is not None:
        return _replace_block(document, entry, value, colon)
    if is_flow or not value or not isinstance(value, list | dict):
        new = yaml_writer.flow(value) if is_flow else yaml_writer.scalar(value)
        if start == end and colon is None:
            raise EditError("the key has no colon after which to put a value")
        return [Piece(start, end, new) if start < end else Piece(colon or start, end, f" {new}", VALUE)]
    if colon is None:
        raise EditError("the key has no colon after which to put a value")
    style = _style(document)
    indent = entry.key.span.column - 1 + (style.step if isinstance(value, dict) else style.sequence)
    at = line_end(text, end)
    return [Piece(colon, end, ""), _lines(document, at, at, yaml_writer.block(value, indent, style), CONTENT)]


def remove(document: Document, mapping: Node, entries: list[Entry]) -> list[Piece]:
    """Take entries out with their lines, comments on those lines included."""
    text = document.text
    if len(entries) == len(mapping.entries()):
        return [Piece(mapping.span.start, mapping.span.end, "{}")]
    pieces = []
    siblings = own(mapping)
    for entry in entries:
        end = line_end(text, value_bounds(document, entry)[1])
        start = line_start(text, entry.key.span.start)
        if starts_line(text, entry.key.span.start):
            if end < len(text):
                end += len(line_break(text, end))
            elif start > 0:
                start = _before_break(text, start)
            pieces.append(Piece(start, end, ""))
            continue
        following = next((each for each in siblings if each.key.span.start > entry.key.span.start), None)
        if following is None or text[end : following.key.span.start].strip():
            raise EditError("the key shares its line with something that must stay")
        pieces.append(Piece(entry.key.span.start, following.key.span.start, ""))
    return pieces


def _replace_block(document: Document, entry: Entry, value: Any, colon: int) -> list[Piece]:
    """Another value for an entry whose value stands in lines of its own."""
    text = document.text
    span = entry.value.span
    before = _before_break(text, line_start(text, span.start))
    end = line_end(text, span.end)
    if before < colon:
        raise EditError("the value starts on the line of its key")
    if not value or not isinstance(value, list | dict):
        return [Piece(colon, colon, f" {yaml_writer.scalar(value)}", VALUE), Piece(before, end, "")]
    style = _style(document)
    indent = entry.key.span.column - 1 + (style.step if isinstance(value, dict) else style.sequence)
    if isinstance(value, dict) == (entry.value.kind == "mapping"):
        indent = span.column - 1
    old = entry.value.items()
    if old and isinstance(value, list) and all(item.span.start > span.start for item in old):
        before, end, value = _items_that_differ(text, old, value, before)
    return [_lines(document, before, end, yaml_writer.block(value, indent, style), 0)]


def _items_that_differ(text: str, old: list[Node], new: list[Any], before: int) -> tuple[int, int, list[Any]]:
    """The bounds of the lines that two lists do not share at either end, and the items to write there."""
    plain = [item.plain() for item in old]
    most = min(len(plain), len(new))
    head = next((i for i in range(most) if not same(plain[i], new[i])), most)
    tail = next((i for i in range(most - head) if not same(plain[-1 - i], new[-1 - i])), most - head)
    start = line_end(text, old[head - 1].span.end) if head else before
    stop = len(old) - tail
    end = line_end(text, old[stop - 1].span.end) if stop > head else start
    return start, end, new[head : len(new) - tail]


def _lines(document: Document, start: int, end: int, lines: list[str], rank: int) -> Piece:
    newline = line_break(document.text, start)
    return Piece(start, end, "".join(newline + line for line in lines), rank)


def _entry_line_end(document: Document, entry: Entry) -> int:
    """The end of an entry's last line; the blank lines that a `|+` scalar keeps are its own."""
    text = document.text
    end = line_end(text, value_bounds(document, entry)[1])
    header = entry.value.raw[:3]
    if header[:1] in ("|", ">") and "+" in header:
        while end < len(text):
            following = end + len(line_break(text, end))
            stop = line_end(text, following)
            if following >= len(text) or text[following:stop].strip():
                break
            end = stop
    return end


def _before_break(text: str, start: int) -> int:
    """The end of the line before the line that starts at `start`."""
    return start - (2 if text.startswith("\r\n", start - 2) and start > 1 else 1)


def _style(document: Document) -> yaml_writer.Style:
    return yaml_writer.style_of(document.root)
