"""YAML text to trees: PyYAML's event stream through an iterative composer.

PyYAML's own C composer crashes on deeply nested files, so only its events are used, and every cap is checked
while they are read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from ..document import Document, Duplicate, SourceError, Tag, duplicates
from ..limits import MAX_DEPTH, MAX_EXPANDED, MAX_NODES
from ..node import Entry, Node
from ..places import BOM, Places
from . import parse as yaml_parse
from .comments import comments
from .scalar import PREFIX, construct, known_tag, resolve

if TYPE_CHECKING:
    from ..node import Scalar

_COLON = re.compile(r"\s*:")
_BREAKS = "\r\n\x85\u2028\u2029"


def read_yaml(text: str, path: str) -> Document:
    """Read every document of a YAML stream; an empty stream is one null. Raises SourceError."""
    composer = _Composer(text, path)
    composer.run()
    composer.duplicates.sort(key=lambda duplicate: duplicate.lost.start)
    composer.tags.sort(key=lambda tag: tag.span.start)
    return Document(
        path,
        "yaml",
        text,
        composer.roots or [Node("scalar", None, composer.places.span(composer.base, composer.base))],
        comments(text, composer.places, composer.scalars),
        composer.duplicates,
        tuple(composer.tags),
    )


class _Weight:
    """What a node amounts to with its aliases written out: how many nodes, how many levels."""

    __slots__ = ("height", "nodes")

    def __init__(self) -> None:
        self.nodes = 1
        self.height = 1

    def add(self, child: _Weight) -> None:
        self.nodes += child.nodes
        self.height = max(self.height, child.height + 1)


_LEAF = _Weight()


class _Open:
    """A collection whose end has not been read; `end` is where its last child ends."""

    __slots__ = ("anchor", "end", "flow", "key", "merges", "node", "start", "tag", "weight")

    def __init__(self, kind: str, event: Any, start: int) -> None:
        self.node = Node(kind, [], None)  # type: ignore[arg-type]
        self.anchor: str | None = event.anchor
        self.tag: str | None = event.tag
        self.flow: bool = event.flow_style
        self.start = start
        self.end = start
        self.key: Node | None = None
        self.merges: list[Node] = []
        self.weight = _Weight()


class _Composer:
    __slots__ = (
        "anchors",
        "base",
        "count",
        "duplicates",
        "path",
        "places",
        "roots",
        "scalars",
        "stack",
        "tags",
        "text",
    )

    def __init__(self, text: str, path: str) -> None:
        self.text = text
        self.path = path
        self.base = 1 if text.startswith(BOM) else 0
        self.places = Places(text)
        self.roots: list[Node] = []
        self.duplicates: list[Duplicate] = []
        self.tags: list[Tag] = []
        self.scalars: list[tuple[int, int]] = []
        self.stack: list[_Open] = []
        self.anchors: dict[str, tuple[Node, _Weight] | None] = {}
        self.count = 0

    def run(self) -> None:
        handlers = {
            ScalarEvent: self.scalar,
            AliasEvent: self.alias,
            SequenceStartEvent: self.sequence,
            MappingStartEvent: self.mapping,
            SequenceEndEvent: self.close,
            MappingEndEvent: self.close,
            DocumentStartEvent: self.document,
        }
        events = yaml_parse.events(self.text[self.base :])
        try:
            for event in events:
                handler = handlers.get(type(event))
                if handler:
                    handler(event)
                elif type(event) is StreamEndEvent:
                    break
        except yaml_parse.YamlError as error:
            raise self.error(error.reason, error.offset + self.base) from None

    def error(self, reason: str, offset: int) -> SourceError:
        return SourceError(self.path, reason, *self.places.at(offset))

    def document(self, _: Any) -> None:
        self.anchors = {}

    def scalar(self, event: Any) -> None:
        start = self.base + event.start_mark.index
        end = self.base + event.end_mark.index
        if properties := bool(event.anchor) + bool(event.tag):
            start = yaml_parse.after_properties(self.text, start, end, properties)
        if event.style in ("|", ">"):
            end = _block_end(self.text, start, end, event.value)
        if start == end:
            start = end = self.empty_value(start)
        span = self.places.span(start, end)
        node = Node("scalar", self.value(event, start), span, self.text[start:end])
        self.note_tag(event.tag, node)
        if event.implicit[0] and event.value in ("<<", "="):
            self.merge_or_default(event.value, node)
        if end > start:
            self.scalars.append((start, end))
        self.add(node, event.anchor, _LEAF, end)

    def value(self, event: Any, start: int) -> Scalar:
        text: str = yaml_parse.without_surrogates(event.value)
        if event.tag in (None, "!"):
            return resolve(text) if event.implicit[0] else text
        if not known_tag("scalar", event.tag):
            return text
        try:
            return construct(event.tag, text)
        except (ValueError, OverflowError):
            raise self.error(f"not a valid !!{event.tag.removeprefix(PREFIX)}", start) from None

    def empty_value(self, offset: int) -> int:
        """Where a value that is not written stands: behind its colon, though libyaml says at the next token."""
        key = self.stack[-1].key if self.stack else None
        colon = _COLON.match(self.text, key.span.end, offset) if key else None
        return colon.end() if colon else offset

    def note_tag(self, tag: str | None, node: Node) -> None:
        if tag is not None and tag != "!" and not known_tag(node.kind, tag):
            self.tags.append(Tag(tag, node.span))

    def merge_or_default(self, text: str, node: Node) -> None:
        """A plain `<<` or `=` has a type of its own, which no safe loader constructs unless it is a key."""
        top = self.stack[-1] if self.stack else None
        is_key = top is not None and top.node.kind == "mapping" and top.key is None
        if not is_key:
            self.tags.append(Tag(PREFIX + ("merge" if text == "<<" else "value"), node.span))
        elif text == "<<":
            node.kind = "merge"

    def sequence(self, event: Any) -> None:
        self.open("sequence", event)

    def mapping(self, event: Any) -> None:
        self.open("mapping", event)

    def open(self, kind: str, event: Any) -> None:
        start = self.base + event.start_mark.index
        if len(self.stack) >= MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH} levels", start)
        if properties := bool(event.anchor) + bool(event.tag):
            start = yaml_parse.after_properties(self.text, start, len(self.text), properties)
        if event.anchor:
            self.claim(event.anchor, start)
            self.anchors[event.anchor] = None
        self.stack.append(_Open(kind, event, start))

    def claim(self, anchor: str, offset: int) -> None:
        if anchor in self.anchors:
            raise self.error(f"anchor &{anchor} is defined twice", offset)

    def alias(self, event: Any) -> None:
        start = self.base + event.start_mark.index
        if event.anchor not in self.anchors:
            raise self.error(f"alias *{event.anchor} has no anchor before it", start)
        known = self.anchors[event.anchor]
        if known is None:
            raise self.error(f"alias *{event.anchor} contains itself", start)
        self.attach(known[0], known[1], self.base + event.end_mark.index)

    def close(self, event: Any) -> None:
        opened = self.stack.pop()
        node = opened.node
        end = self.base + event.end_mark.index if opened.flow else opened.end
        node.span = self.places.span(opened.start, max(end, opened.start))
        self.note_tag(opened.tag, node)
        if opened.weight.height > MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH} levels through aliases", opened.start)
        if node.kind == "mapping":
            self.duplicates += duplicates(node)
            if opened.merges:
                self.merge(opened)
        self.add(node, opened.anchor, opened.weight, node.span.end)

    def add(self, node: Node, anchor: str | None, weight: _Weight, end: int) -> None:
        self.count += 1
        if self.count > MAX_NODES:
            raise self.error(f"more than {MAX_NODES} keys and values", node.span.start)
        if anchor:
            if node.kind == "merge":
                raise self.error("a merge key (<<) with an anchor is not supported", node.span.start)
            if node.kind == "scalar":
                self.claim(anchor, node.span.start)
            self.anchors[anchor] = (node, weight)
        self.attach(node, weight, end)

    def attach(self, node: Node, weight: _Weight, end: int) -> None:
        """Put a complete node into the collection that is open; `end` is where it, or its alias, ends."""
        if not self.stack:
            self.roots.append(node)
            return
        top = self.stack[-1]
        top.end = max(top.end, end)
        top.weight.add(weight)
        if top.weight.nodes > MAX_EXPANDED:
            raise self.error(f"more than {MAX_EXPANDED} values through aliases", top.start)
        if top.node.kind == "sequence":
            top.node.value.append(node)
        elif top.key is None:
            if node.kind not in ("scalar", "merge"):
                raise self.error("a mapping key must be a scalar", node.span.start)
            top.key = node
        else:
            key, top.key = top.key, None
            if key.kind == "merge":
                top.merges.append(node)
            else:
                top.node.value.append(Entry(key, node))

    def merge(self, opened: _Open) -> None:
        """Put the merged entries first, so that own ones win; in a list of mappings, the first one wins."""
        merged: list[Entry] = []
        for value in opened.merges:
            sources = list(reversed(value.value)) if value.kind == "sequence" else [value]
            for source in sources:
                if source.kind != "mapping":
                    raise self.error("a merge (<<) takes a mapping or a list of mappings", opened.node.span.start)
                merged.extend(source.value)
                if len(merged) > MAX_NODES:
                    raise self.error(f"more than {MAX_NODES} merged keys", opened.start)
        self.count += len(merged)
        opened.weight.nodes += len(merged)
        opened.node.merged = len(merged)
        opened.node.value[:0] = merged


def _block_end(text: str, start: int, end: int, value: str) -> int:
    """The end of a block scalar's last line that holds content; its event also covers the blank lines behind it."""
    if value.rstrip("\n").rpartition("\n")[2].isspace():  # a last line of blanks only, deeper than the indentation
        return start + len(text[start:end].rstrip(_BREAKS))
    last = start + len(text[start:end].rstrip(_BREAKS + " \t"))
    while last < end and text[last] in " \t":
        last += 1
    return last
