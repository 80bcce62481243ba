"""The tree that every reader produces: values that know where they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

Scalar = str | int | float | bool | None


class Span(NamedTuple):
    """A piece of a file. Lines and columns count from 1, columns in characters; the end is exclusive.

    `start` and `end` are the same piece as character offsets into the text.
    """

    line: int
    column: int
    end_line: int
    end_column: int
    start: int
    end: int


class Comment(NamedTuple):
    """A comment without its marker, and the line it stands on."""

    line: int
    text: str


class Node:
    """A scalar, sequence or mapping with its span.

    `value` is what the reading tool would see (a Python scalar) for a scalar, a list of nodes for a
    sequence, a list of `Entry` in file order for a mapping. `raw` is a scalar's text as written, quotes
    included. Aliased YAML nodes are shared, never copied. `merged` counts the leading entries of a mapping
    that YAML merge keys (`<<`) brought in: they stand elsewhere in the file, and own entries win over them.
    `path` is the file that a node stands in where that is not its document's own (a flag laid over a config). `may_be`
    are the values one of which a scalar has that the start fills in, where the script states them all. `open` is
    the word by which the start may add entries to a mapping that nobody states (`$EXTRA_ARGS`).
    """

    __slots__ = ("kind", "may_be", "merged", "open", "path", "raw", "span", "value")

    def __init__(self, kind: str, value: Any, span: Span, raw: str = "") -> None:
        self.kind = kind
        self.value = value
        self.span = span
        self.raw = raw
        self.merged = 0
        self.path: str | None = None
        self.may_be: tuple[Any, ...] = ()
        self.open = ""

    @property
    def is_mapping(self) -> bool:
        """Whether this node has entries."""
        return self.kind == "mapping"

    @property
    def is_sequence(self) -> bool:
        """Whether this node has items."""
        return self.kind == "sequence"

    @property
    def is_scalar(self) -> bool:
        """Whether this node is a leaf."""
        return self.kind == "scalar"

    def entries(self) -> list[Entry]:
        """The entries of a mapping in file order, duplicates included; empty for anything else."""
        return self.value if self.kind == "mapping" else []

    def items(self) -> list[Node]:
        """The items of a sequence; empty for anything else."""
        return self.value if self.kind == "sequence" else []

    def entry(self, key: str) -> Entry | None:
        """The entry that counts for `key`: the last one, as PyYAML and `json` keep it."""
        for entry in reversed(self.entries()):
            if entry.key.value == key:
                return entry
        return None

    def get(self, key: str) -> Node | None:
        """The value node of `key`, or None."""
        entry = self.entry(key)
        return entry.value if entry else None

    def find(self, path: str) -> Entry | None:
        """The entry at a dotted path of keys (`zero_optimization.stage`), or None.

        A key that itself holds dots is tried whole first at every level.
        """
        entry = self.entry(path)
        if entry:
            return entry
        head, dot, rest = path.partition(".")
        child = self.get(head) if dot else None
        return child.find(rest) if child else None

    def keys(self) -> Iterator[str]:
        """The string keys of a mapping, in file order."""
        return (entry.key.value for entry in self.entries() if isinstance(entry.key.value, str))

    def plain(self) -> Any:
        """The same value as plain Python objects, the last of equal keys winning.

        Shared nodes become shared objects, so an alias bomb stays as small as its file.
        """
        return _plain(self, {})

    def __repr__(self) -> str:
        return f"<{self.kind} at {self.span.line}:{self.span.column}>"


class Entry(NamedTuple):
    """One `key: value` of a mapping."""

    key: Node
    value: Node


def _plain(node: Node, seen: dict[int, Any]) -> Any:
    known = seen.get(id(node))
    if known is not None:
        return known
    if node.kind == "mapping":
        mapping: dict[Any, Any] = {}
        seen[id(node)] = mapping
        for entry in node.value:
            key = entry.key.value
            mapping[key if isinstance(key, Scalar) else str(entry.key)] = _plain(entry.value, seen)
        return mapping
    if node.kind == "sequence":
        sequence: list[Any] = []
        seen[id(node)] = sequence
        sequence.extend(_plain(item, seen) for item in node.value)
        return sequence
    return node.value
