"""YAML that stands in a string of another file: a ConfigMap's `inference_config.yaml: |`, Ray's `serveConfigV2: |`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..source.document import SourceError
from ..source.node import Entry, Node
from ..source.places import Places, places_of
from ..source.read import parse
from .shell.script import of_scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..source.document import Document
    from ..source.node import Span
    from .shell.script import Script

MAX_TEXT = 200_000
"""Characters of an embedded text that are read."""


def embedded(file: Document, node: Node | None) -> Document | None:
    """The mapping that a string holds, with the places of the file around it; None where it holds none."""
    if node is None or not isinstance(node.value, str) or len(node.value) > MAX_TEXT:
        return None
    return held(file, of_scalar(file, node))


def held(file: Document, script: Script) -> Document | None:
    """The mapping that a piece of a file holds, with its places in the file; None where it holds none."""
    if not script.text or len(script.text) > MAX_TEXT:
        return None
    try:
        inner = parse(script.text, file.path, "yaml")
    except SourceError:
        return None
    if not inner.roots or not inner.root.is_mapping:
        return None
    mover = _Mover(script.at, places_of(file.text))
    return file._replace(roots=[mover.moved(inner.root)], comments=[], duplicates=[], reread=None)


class _Mover:
    """Copies a tree with its places moved; nodes that an alias shares stay shared."""

    def __init__(self, at: Sequence[int], places: Places) -> None:
        self.at = at
        self.places = places
        self.done: dict[int, Node] = {}

    def span(self, span: Span) -> Span:
        last = len(self.at) - 1
        start = self.at[min(span.start, last)]
        end = self.at[min(span.end - 1, last)] + 1 if span.end > span.start else start
        return self.places.span(start, max(start, end))

    def moved(self, root: Node) -> Node:
        top = self._shell(root)
        waiting = [root]
        while waiting:
            node = waiting.pop()
            copy = self.done[id(node)]
            if node.is_scalar:
                continue
            children = [part for entry in node.entries() for part in entry] or node.items()
            waiting += [child for child in children if id(child) not in self.done]
            for child in children:
                self._shell(child)
            if node.is_mapping:
                copy.value = [Entry(self.done[id(key)], self.done[id(value)]) for key, value in node.entries()]
                copy.merged = node.merged
            else:
                copy.value = [self.done[id(item)] for item in node.items()]
        return top

    def _shell(self, node: Node) -> Node:
        found = self.done.get(id(node))
        if found is None:
            found = Node(node.kind, node.value, self.span(node.span), node.raw)
            self.done[id(node)] = found
        return found
