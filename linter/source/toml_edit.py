"""Edits of a TOML file: values replaced, keys put behind the last of their table, tables put at the end of the file.

What the edit makes of the file is not known here: the caller reads the file again and compares.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from .edit_text import EditError, Piece, line_break, line_end, line_start, margin, same, unshared

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .document import Document
    from .node import Entry, Node

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_HEADER = re.compile(r"\[+([^\]]*)\]")
_LINE_END = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\r?\n|\Z)")


class _Table(NamedTuple):
    """A table of the file; `header` is where its `[name]` starts, None where it has none; `inline`: `{a = 1}`."""

    node: Node
    path: tuple[str, ...]
    header: int | None
    inline: bool


class TomlPlan:
    """Changes of one file and the tree that they should result in."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.text = document.text
        self.intended: Any = unshared(document.root.plain())
        self.found: list[Piece] = []
        self.new_keys: dict[tuple[str, ...], list[tuple[str, Any]]] = {}
        self.tables = {table.path: table for table in _tables(document.text, document.root, ())}

    def set(self, key: str, value: Any) -> None:
        """Give a dotted key a value, with the tables it lacks."""
        entry = self.document.root.find(key)
        names = tuple(key.split("."))
        _put(self.intended, names, value)
        if entry is None:
            self.new_keys.setdefault(names[:-1], []).append((names[-1], value))
        elif not same(unshared(entry.value.plain()), value):
            if entry.value.is_mapping:
                raise EditError(f"{key} is a table")
            self.found.append(Piece(entry.value.span.start, entry.value.span.end, literal(value)))

    def remove(self, key: str) -> None:
        """Take a dotted key out, with its line."""
        entry = self.document.root.find(key)
        if entry is None:
            raise EditError(f"there is no key {key}")
        start = line_start(self.text, entry.key.span.start)
        end = _LINE_END.match(self.text, entry.value.span.end)
        written = self.text[start : entry.key.span.start].strip(" \t")
        if end is None or written or entry.value.is_mapping:
            raise EditError(f"{key} does not stand on a line of its own")
        self.found.append(Piece(start, end.end(), ""))
        parent = self.intended
        *names, last = key.split(".")
        for name in names:
            parent = parent[name]
        parent.pop(last)

    def rename(self, key: str, new: str) -> None:
        """Give the last name of a dotted key another spelling."""
        entry = self.document.root.find(key)
        if entry is None or entry.value.is_mapping:
            raise EditError(f"there is no key {key} with a value")
        *names, last = key.split(".")
        parent = self.intended
        for name in names:
            parent = parent[name]
        if new in parent:
            raise EditError(f"there is already a key {new}")
        self.found.append(Piece(entry.key.span.start, entry.key.span.end, _key(new)))
        parent[new] = parent.pop(last)

    def pieces(self) -> list[Piece]:
        """Every replacement of text, in no order."""
        found = list(self.found)
        ends = ""
        newline = line_break(self.text)
        for path, pairs in self.new_keys.items():
            table = self.tables.get(path)
            if table is not None and not self._is_implied(table):
                found.append(self._into(table, pairs, newline))
                continue
            if any(self.tables[path[:size]].inline for size in range(1, len(path)) if path[:size] in self.tables):
                raise EditError("an inline table takes no table of its own")
            lines = [f"[{'.'.join(map(_key, path))}]", *(f"{_key(name)} = {literal(value)}" for name, value in pairs)]
            ends += newline + newline.join(lines) + newline
        if ends:
            gap = "" if self.text.endswith(("\n", "\r")) or not self.text else newline
            found.append(Piece(len(self.text), len(self.text), gap + ends))
        return found

    def _into(self, table: _Table, pairs: list[tuple[str, Any]], newline: str) -> Piece:
        """New keys behind the last of a table's own lines."""
        written = [f"{_key(name)} = {literal(value)}" for name, value in pairs]
        own = [entry for entry in table.node.entries() if not self._has_header(entry, table)]
        last = max(own, key=lambda entry: entry.value.span.end, default=None)
        if table.inline:
            if last is None:
                return Piece(table.node.span.start + 1, table.node.span.start + 1, f" {', '.join(written)} ")
            return Piece(last.value.span.end, last.value.span.end, ", " + ", ".join(written))
        if last is not None:
            if line_start(self.text, last.key.span.start) + len(margin(self.text, last.key.span.start)) != (
                last.key.span.start
            ):
                raise EditError("the table is written as dotted keys")
            at = line_end(self.text, last.value.span.end)
            indent = margin(self.text, last.key.span.start)
        elif table.header is not None:
            at, indent = line_end(self.text, table.header), margin(self.text, table.header)
        else:
            return Piece(0, 0, "".join(line + newline for line in written))
        return Piece(at, at, "".join(newline + indent + line for line in written))

    def _is_implied(self, table: _Table) -> bool:
        """Whether only the headers of tables below it mention a table."""
        entries = table.node.entries()
        own = all(self._has_header(entry, table) for entry in entries)
        return bool(table.path) and not table.inline and table.header is None and own

    def _has_header(self, entry: Entry, table: _Table) -> bool:
        """Whether the value stands under a header of its own, or is a list of such tables."""
        value = entry.value
        if value.is_sequence:
            return any(item.is_mapping and self.text.startswith("[[", item.span.start) for item in value.items())
        below = self.tables.get((*table.path, str(entry.key.value)))
        return value.is_mapping and (below is None or not below.inline)


def literal(value: Any) -> str:
    """A value as TOML spells it. Raises EditError for what TOML cannot say."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return "[" + ", ".join(map(literal, value)) + "]"
    if isinstance(value, dict):
        inner = ", ".join(f"{_key(name)} = {literal(item)}" for name, item in value.items())
        return "{ " + inner + " }" if inner else "{}"
    raise EditError("TOML has no null")


def plan(document: Document, values: Mapping[str, Any], remove: Iterable[str], rename: Mapping[str, str]) -> TomlPlan:
    """The changes of dotted keys of a TOML file."""
    made = TomlPlan(document)
    for key in remove:
        made.remove(key)
    for key, new in rename.items():
        made.rename(key, new)
    for key, value in values.items():
        made.set(key, value)
    return made


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _tables(text: str, node: Node, path: tuple[str, ...]) -> list[_Table]:
    """The table at a node and those below it; tables in lists are left out."""
    start = node.span.start
    header = _HEADER.match(text, start) if path and text.startswith("[", start) else None
    named = tuple(part.strip().strip("\"'") for part in header[1].split(".")) if header else None
    own = header.start() if header is not None and named == path else _own_header(text, node, path)
    found = [_Table(node, path, own, bool(path) and text.startswith("{", start))]
    for entry in node.entries():
        if entry.value.is_mapping:
            found += _tables(text, entry.value, (*path, str(entry.key.value)))
    return found


def _own_header(text: str, node: Node, path: tuple[str, ...]) -> int | None:
    """The header of a table that a header below it mentions first."""
    if not path:
        return None
    names = r"\s*\.\s*".join(rf"[\"']?{re.escape(name)}[\"']?" for name in path)
    match = re.compile(rf"^[ \t]*(\[)[ \t]*{names}[ \t]*\]", re.MULTILINE).search(text, node.span.start)
    return match.start(1) if match is not None and match.start(1) < node.span.end else None


def _put(tree: Any, path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
        if not isinstance(tree, dict):
            raise EditError(f"{name} is no table")
    tree[path[-1]] = value
