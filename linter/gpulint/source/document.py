"""A file that has been read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .node import Comment, Node, Span

if TYPE_CHECKING:
    from collections.abc import Callable


class Duplicate(NamedTuple):
    """A key written twice in one mapping: the span that loses, and the span that counts."""

    key: str
    lost: Span
    kept: Span


class Tag(NamedTuple):
    """A YAML tag that PyYAML's safe loader has no constructor for (`!env`); the value is read as if untagged."""

    name: str
    span: Span


class Document(NamedTuple):
    """A file's text and its trees. `path` is as the user wrote it.

    `syntax` is yaml, json, toml, shell (a script, without a tree), or flags (the flags of a command within a file).
    `roots` holds one tree a YAML document (`---`); `root` is the first. Where `tags` is not empty, tools that
    read the file with `yaml.safe_load` refuse it. `reread` makes the same document from another text of the file, where
    it is a part of one; None for a whole file.
    """

    path: str
    syntax: str
    text: str
    roots: list[Node]
    comments: list[Comment]
    duplicates: list[Duplicate]
    tags: tuple[Tag, ...] = ()
    reread: Callable[[str], Document | None] | None = None

    @property
    def root(self) -> Node:
        """The first document's tree."""
        return self.roots[0]


class FileError(Exception):
    """A file that cannot be used. `line` and `column` count from 1 and are 0 where there is no place."""

    def __init__(self, path: str, reason: str, line: int = 0, column: int = 0) -> None:
        super().__init__(reason)
        self.path = path
        self.reason = reason
        self.line = line
        self.column = column

    def __reduce__(self) -> tuple[type[FileError], tuple[str, str, int, int]]:
        return type(self), (self.path, self.reason, self.line, self.column)

    def __str__(self) -> str:
        place = f":{self.line}:{self.column}" if self.line else ""
        return f"{self.path}{place}: {self.reason}"


class SourceError(FileError):
    """A file that cannot be read."""


def duplicates(mapping: Node) -> list[Duplicate]:
    """The keys that a mapping's own entries give more than once, each time but the last."""
    last = {entry.key.value: entry.key for entry in mapping.value}
    if len(last) == len(mapping.value):
        return []
    return [
        Duplicate(str(key.value), key.span, last[key.value].span)
        for key, _ in mapping.value
        if last[key.value] is not key
    ]
