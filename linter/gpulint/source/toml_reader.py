"""TOML 1.0 text to a tree whose values know where they stand.

A table's span runs from its first mention to its last value, so spans of tables that are written in pieces overlap.
"""

from __future__ import annotations

import re
from typing import Any

from .document import Document, SourceError
from .limits import MAX_DEPTH, MAX_NODES
from .node import Comment, Entry, Node
from .places import BOM, Places
from .toml_scalar import COMMENT, key, scalar

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")
_BLANKS = re.compile(r"[ \t]*")
_LINE_END = re.compile(r"\r?\n|\Z")
_VALUE_END = re.compile(r"[ \t\r\n,#\]}]|\Z")

# What a table may still become. `[a.b]` makes `a` IMPLICIT: a header or dotted keys of one section may complete it.
# OPEN ones have had their header. CLOSED ones (inline tables) and arrays of values take nothing more.
IMPLICIT, OPEN, CLOSED = "implicit", "open", "closed"


def read_toml(text: str, path: str) -> Document:
    """Read a TOML file. Raises SourceError; in TOML that includes a key given twice."""
    reader = _Reader(text, path)
    root = reader.run()
    return Document(path, "toml", text, [root.finish(reader.places)], reader.comments, [])


class _Table:
    """A mapping being filled, or an array of tables (`tables` is not None)."""

    __slots__ = ("end", "entries", "start", "state", "tables")

    def __init__(self, state: str, start: int, tables: list[_Table] | None = None) -> None:
        self.state = state
        self.start = start
        self.end = start
        self.entries: dict[str, tuple[Node, _Table | Node]] = {}
        self.tables = tables

    def finish(self, places: Places) -> Node:
        """The node; the depth of tables is capped, so this may recurse."""
        node = Node("mapping" if self.tables is None else "sequence", [], places.span(0, 0))
        for table in self.tables or ():
            node.value.append(table.finish(places))
        for name, child in self.entries.values():
            node.value.append(Entry(name, child.finish(places) if isinstance(child, _Table) else child))
        ends = [entry.value.span.end if self.tables is None else entry.span.end for entry in node.value]
        node.span = places.span(self.start, max([self.end, *ends]))
        return node


class _Reader:
    __slots__ = ("at", "comments", "count", "fresh", "path", "places", "text")

    def __init__(self, text: str, path: str) -> None:
        self.text = text
        self.path = path
        self.places = Places(text)
        self.at = 1 if text.startswith(BOM) else 0
        self.count = 0
        self.comments: list[Comment] = []
        self.fresh: list[_Table] = []  # tables made by the dotted keys of this section

    def error(self, reason: str, at: int | None = None) -> SourceError:
        return SourceError(self.path, reason, *self.places.at(self.at if at is None else at))

    def run(self) -> _Table:
        if control := _CONTROL.search(self.text):
            raise self.error(f"character U+{ord(control[0]):04X} is not allowed in TOML", control.start())
        root = section = _Table(OPEN, self.at)
        depth = 1
        while True:
            self.skip_lines()
            char = self.peek()
            if not char:
                return root
            if char == "[":
                for table in self.fresh:
                    table.state = OPEN
                self.fresh.clear()
                section, depth = self.header(root)
            else:
                self.pair(section, depth)
            self.skip()
            self.comment()
            end = _LINE_END.match(self.text, self.at)
            if end is None:
                raise self.error("expected the end of the line")
            self.at = end.end()

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def skip(self) -> str:
        match = _BLANKS.match(self.text, self.at)
        if match:
            self.at = match.end()
        return self.peek()

    def skip_lines(self) -> str:
        """Move past blanks, comments and line breaks."""
        while True:
            self.skip()
            self.comment()
            end = _LINE_END.match(self.text, self.at)
            if end is None or end.end() == self.at:
                return self.peek()
            self.at = end.end()

    def comment(self) -> None:
        match = COMMENT.match(self.text, self.at)
        if match:
            self.comments.append(Comment(self.places.at(self.at)[0], match[1].strip()))
            self.at = match.end()

    def expect(self, text: str) -> None:
        if not self.text.startswith(text, self.at):
            raise self.error(f"expected '{text}'")
        self.at += len(text)

    def names(self) -> list[Node]:
        """A dotted key, as one node a part."""
        parts: list[Node] = []
        while True:
            self.skip()
            found = key(self.text, self.at)
            if found is None:
                raise self.error("expected a key")
            start, self.at = self.at, found[1]
            parts.append(self.leaf(found[0], start))
            if self.skip() != ".":
                return parts
            self.at += 1

    def leaf(self, value: Any, start: int) -> Node:
        self.count += 1
        if self.count > MAX_NODES:
            raise self.error(f"more than {MAX_NODES} keys and values", start)
        return Node("scalar", value, self.places.span(start, self.at), self.text[start : self.at])

    def header(self, root: _Table) -> tuple[_Table, int]:
        """`[a.b]` or `[[a.b]]`: the table whose keys follow, and its depth."""
        start = self.at
        closing = "]]" if self.text.startswith("[[", start) else "]"
        self.at += len(closing)
        names = self.names()
        self.expect(closing)
        table = root
        depth = 1
        for name in names[:-1]:
            table = self.step(table, name, start)
            depth += 1
            if table.tables is not None:
                table = table.tables[-1]
                depth += 1
        if depth + len(closing) > MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH} levels", start)
        name = names[-1]
        _, known = table.entries.get(name.value, (None, None))
        if closing == "]]":
            new = _Table(OPEN, start)
            new.end = self.at
            if known is None:
                known = _Table(OPEN, start, [])
                table.entries[name.value] = (name, known)
            elif not isinstance(known, _Table) or known.tables is None:
                raise self.error("already defined as something other than an array of tables", start)
            assert known.tables is not None
            known.tables.append(new)
            return new, depth + 2
        if known is None:
            known = _Table(IMPLICIT, start)
            table.entries[name.value] = (name, known)
        if not isinstance(known, _Table) or known.tables is not None or known.state != IMPLICIT:
            raise self.error("already defined", start)
        known.state = OPEN
        known.end = max(known.end, self.at)
        return known, depth + 1

    def step(self, table: _Table, name: Node, start: int) -> _Table:
        """One part of a header's path."""
        _, known = table.entries.get(name.value, (None, None))
        if known is None:
            known = _Table(IMPLICIT, start)
            table.entries[name.value] = (name, known)
        if not isinstance(known, _Table) or known.state == CLOSED:
            raise self.error("already defined as a value", name.span.start)
        return known

    def pair(self, table: _Table, depth: int) -> None:
        """`a.b = value` into a table."""
        names = self.names()
        self.expect("=")
        if depth + len(names) > MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH} levels", names[0].span.start)
        touched = [table]
        for name in names[:-1]:
            _, known = table.entries.get(name.value, (None, None))
            if known is None:
                known = _Table(IMPLICIT, name.span.start)
                table.entries[name.value] = (name, known)
            if not isinstance(known, _Table) or known.state != IMPLICIT:
                raise self.error("already defined", name.span.start)
            self.fresh.append(known)
            table = known
            touched.append(table)
        name = names[-1]
        if name.value in table.entries:
            raise self.error("already defined", name.span.start)
        value = self.value(depth + len(names))
        table.entries[name.value] = (name, value)
        end = value.end if isinstance(value, _Table) else value.span.end
        for each in touched:
            each.end = max(each.end, end)

    def value(self, depth: int) -> _Table | Node:
        char = self.skip()
        if depth > MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH} levels")
        if char == "[":
            return self.array(depth)
        if char == "{":
            return self.inline_table(depth)
        found = scalar(self.text, self.at)
        if found is None:
            raise self.error("expected a value")
        start, self.at = self.at, found[1]
        if not _VALUE_END.match(self.text, self.at):
            raise self.error("not a valid value", start)
        return self.leaf(found[0], start)

    def array(self, depth: int) -> Node:
        start = self.at
        self.at += 1
        items: list[Node] = []
        while self.skip_lines() != "]":
            item = self.value(depth + 1)
            items.append(item.finish(self.places) if isinstance(item, _Table) else item)
            if self.skip_lines() != ",":
                break
            self.at += 1
        self.expect("]")
        node = self.leaf(items, start)
        node.kind = "sequence"
        node.raw = ""
        return node

    def inline_table(self, depth: int) -> _Table:
        table = _Table(OPEN, self.at)
        outer, self.fresh = self.fresh, []
        self.at += 1
        if self.skip() != "}":
            while True:
                self.pair(table, depth)
                if self.skip() != ",":
                    break
                self.at += 1
        self.expect("}")
        for inner in self.fresh:
            inner.state = CLOSED
        self.fresh = outer
        table.state = CLOSED
        table.end = self.at
        return table
