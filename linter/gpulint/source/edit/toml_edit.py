"""Edits of TOML files: values replaced where they stand, keys added to their table, lines taken out.

A new key goes behind the last plain key of its table, in the form of the line there (indent, dotted prefix); a table
that is not there is added at the end of the file. What the edit makes of the file is not known here: the caller reads
it again and compares.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ..toml_scalar import BARE_KEY
from .edit_text import EditError, Piece, line_break, line_end, line_start, margin, unshared

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..document import Document
    from ..node import Entry, Node

_REST = re.compile(r"[ \t]*(?:#[^\r\n]*)?(?:\r?\n|\Z)")


def pieces(
    document: Document, values: Mapping[str, Any], remove: tuple[str, ...], rename: Mapping[str, str]
) -> tuple[list[Piece], dict[str, Any]]:
    """The replacements of text that set, remove and rename dotted keys, and the plain tree that should result."""
    editor = _Editor(document)
    for key in remove:
        editor.remove(key)
    for key, new in rename.items():
        editor.rename(key, new)
    for key, value in values.items():
        editor.set(key, value)
    return [*editor.pieces, *editor.insertions()], editor.intended


class _Editor:
    """The pieces so far; new keys are collected by the table that they go to."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.text = document.text
        self.intended: dict[str, Any] = unshared(document.root.plain())
        self.pieces: list[Piece] = []
        self.gone: set[int] = set()
        self.new: dict[int, tuple[Node, dict[tuple[str, ...], dict[str, Any]]]] = {}

    def remove(self, key: str) -> None:
        table, entry, path = self.existing(key)
        self.gone.add(id(entry.key))
        self.pieces.append(self.removal(table, entry))
        _parent(self.intended, path).pop(path[-1])

    def rename(self, key: str, new: str) -> None:
        table, entry, path = self.existing(key)
        if table.entry(new):
            raise EditError(f"there is already a key {new}")
        self.pieces.append(Piece(entry.key.span.start, entry.key.span.end, key_text(new)))
        parent = _parent(self.intended, path)
        parent[new] = parent.pop(path[-1])

    def set(self, key: str, value: Any) -> None:
        table, entry, missing, path = self.find(key)
        if entry is not None and not missing:
            self.replace(key, entry, value)
        elif entry is not None:
            raise EditError(f"{entry.key.value} is not a table")
        else:
            *parents, name = missing
            if isinstance(value, dict) and value and not self.is_inline(table):
                parents, name = missing, ""
            groups = self.new.setdefault(id(table), (table, {}))[1]
            groups.setdefault(tuple(parents), {}).update({name: value} if name else value)
        _put(self.intended, path, value)

    def replace(self, key: str, entry: Entry, value: Any) -> None:
        old = entry.value
        if old.is_mapping and not self.is_inline(old):
            if not isinstance(value, dict):
                raise EditError(f"{key} is a table")
            for name in sorted(set(old.keys()) - value.keys()):
                self.remove(f"{key}.{name}")
            for name, item in value.items():
                self.set(f"{key}.{name}", item)
        elif type(old.plain()) is not type(value) or old.plain() != value:
            self.pieces.append(Piece(old.span.start, old.span.end, self.value_text(old, value)))

    def value_text(self, old: Node, value: Any) -> str:
        """The value in the quotes of the one it replaces, where they can hold it."""
        if isinstance(value, str) and old.raw.startswith("'") and not old.raw.startswith("'''"):
            literal = f"'{value}'"
            if re.fullmatch(r"'[^'\x00-\x08\x0a-\x1f\x7f]*'", literal):
                return literal
        return text_of(value)

    def find(self, key: str) -> tuple[Node, Entry | None, list[str], list[str]]:
        """The table, the entry in it if there is one, the names that are missing, and the whole path."""
        node, rest = self.document.root, key
        path: list[str] = []
        while True:
            entry = node.entry(rest)
            if entry is not None:
                return node, entry, [], [*path, rest]
            head, dot, tail = rest.partition(".")
            entry = node.entry(head) if dot else None
            if entry is None:
                return node, None, rest.split("."), path + rest.split(".")
            path.append(head)
            if not entry.value.is_mapping:
                return node, entry, tail.split("."), path
            node, rest = entry.value, tail

    def existing(self, key: str) -> tuple[Node, Entry, list[str]]:
        table, entry, missing, path = self.find(key)
        if entry is None or missing:
            raise EditError(f"there is no key {key}")
        return table, entry, path

    def is_inline(self, node: Node) -> bool:
        """Whether a table stands in braces."""
        return self.text[node.span.start : node.span.start + 1] == "{"

    def is_section(self, entry: Entry) -> bool:
        """Whether an entry is a table of its own, or several: its value does not stand behind its key."""
        return entry.value.span.start <= entry.key.span.start

    def removal(self, table: Node, entry: Entry) -> Piece:
        if self.is_section(entry):
            raise EditError(f"{entry.key.value} is a table")
        start, end = entry.key.span.start, entry.value.span.end
        if self.is_inline(table):
            return self.inline_removal(table, entry)
        begin, rest = line_start(self.text, start), _REST.match(self.text, end)
        before = self.text[begin:start]
        if rest is None or not re.fullmatch(r"[ \t]*(?:[\w-]+[ \t]*\.[ \t]*)*", before):
            raise EditError("the key shares its line")
        return Piece(begin, rest.end(), "")

    def inline_removal(self, table: Node, entry: Entry) -> Piece:
        entries = table.entries()
        at = next(index for index, other in enumerate(entries) if other.key is entry.key)
        if len(entries) == 1:
            return Piece(table.span.start + 1, table.span.end - 1, "")
        if at + 1 < len(entries):
            return Piece(entry.key.span.start, entries[at + 1].key.span.start, "")
        return Piece(entries[at - 1].value.span.end, entry.value.span.end, "")

    def insertions(self) -> list[Piece]:
        """The new keys, at one place a table."""
        found: list[Piece] = []
        for table, groups in self.new.values():
            for parents, values in groups.items():
                if self.is_inline(table) or not parents:
                    found += self.insertion(table, parents, values)
                else:
                    found.append(self.section([*self.names_of(table), *parents], values))
        return found

    def insertion(self, table: Node, parents: tuple[str, ...], values: dict[str, Any]) -> list[Piece]:
        """Keys of a table that is there, behind its last plain key, else below its header."""
        prefix = "".join(f"{key_text(name)}." for name in parents)
        members = [f"{prefix}{key_text(name)} = {text_of(value)}" for name, value in values.items()]
        plain = [e for e in table.entries() if not self.is_section(e) and id(e.key) not in self.gone]
        if self.is_inline(table):
            if not plain:
                return [Piece(table.span.start + 1, table.span.end - 1, " " + ", ".join(members) + " ")]
            end = plain[-1].value.span.end
            return [Piece(end, end, "".join(f", {member}" for member in members))]
        newline = line_break(self.text)
        if plain:
            last = max(plain, key=lambda entry: entry.value.span.end)
            lead = self.text[line_start(self.text, last.key.span.start) : last.key.span.start]
            at = line_end(self.text, last.value.span.end)
            return [Piece(at, at, "".join(f"{newline}{lead}{member}" for member in members))]
        start = table.span.start
        if table is self.document.root:
            start = int(self.text.startswith("\ufeff"))
            gap = newline if self.text[start:].strip() else ""
            return [Piece(start, start, "".join(f"{member}{newline}" for member in members) + gap)]
        if self.text[start : start + 1] != "[":
            raise EditError("the table has no header of its own")
        at = line_end(self.text, start)
        indent = margin(self.text, start)
        return [Piece(at, at, "".join(f"{newline}{indent}{member}" for member in members))]

    def section(self, names: list[str], values: dict[str, Any]) -> Piece:
        """A table at the end of the file."""
        newline = line_break(self.text)
        at = len(self.text)
        ended = not self.text.removeprefix("\ufeff") or self.text.endswith("\n")
        lines = [f"[{'.'.join(map(key_text, names))}]", *(f"{key_text(n)} = {text_of(v)}" for n, v in values.items())]
        head = ("" if ended else newline) + (newline if self.text.strip("\ufeff \t\r\n") else "")
        return Piece(at, at, head + newline.join(lines) + (newline if ended else ""))

    def names_of(self, table: Node) -> list[str]:
        """The keys that lead to a table. Raises EditError for one in an array of tables."""
        found = _path_to(self.document.root, table)
        if found is None:
            raise EditError("the table is one of several")
        return found


def _path_to(node: Node, wanted: Node) -> list[str] | None:
    if node is wanted:
        return []
    for entry in node.entries():
        below = _path_to(entry.value, wanted) if entry.value.is_mapping else None
        if below is not None:
            return [str(entry.key.value), *below]
    return None


def _parent(tree: dict[str, Any], path: list[str]) -> dict[str, Any]:
    for name in path[:-1]:
        tree = tree[name]
    return tree


def _put(tree: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def key_text(name: str) -> str:
    """A key, in quotes where it is not bare."""
    return name if BARE_KEY.fullmatch(name) else text_of(name)


def text_of(value: Any) -> str:
    """A value on one line. Raises EditError for null, which TOML lacks."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(text_of, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key_text(name)} = {text_of(item)}" for name, item in value.items()) + "}"
    raise EditError("TOML has no null")
