"""The arguments of a Python file's calls as they would be after a change, which nothing writes into the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..node import Entry, Node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..document import Document


def changed(document: Document, values: Mapping[str, Any], rename: Mapping[str, str]) -> Document:
    """The document with arguments set, left out (None) and renamed, by dotted keys."""
    root = document.root
    for key, value in values.items():
        root = _with(root, key.split("."), value)
    kept = [Entry(_named(entry.key, rename), entry.value) for entry in root.entries()]
    return document._replace(roots=[Node("mapping", kept, root.span)])


def _named(key: Node, rename: Mapping[str, str]) -> Node:
    new = rename.get(str(key.value))
    return key if new is None else _at(Node("scalar", new, key.span, new), key)


def _with(root: Node, names: list[str], value: Any) -> Node:
    """A mapping with one key set, or without it."""
    name, *rest = names
    old = root.entry(name)
    kept = [entry for entry in root.entries() if entry.key.value != name]
    if rest:
        inner = old.value if old is not None and old.value.is_mapping else Node("mapping", [], root.span)
        value = _with(inner, rest, value)
    elif value is not None:
        value = _node(value, old.value if old is not None else root)
    if value is not None:
        key = old.key if old is not None else _at(Node("scalar", name, root.span, name), root)
        kept.append(Entry(key, value))
    return _at(Node("mapping", kept, root.span), root)


def _node(value: Any, like: Node) -> Node:
    if isinstance(value, dict):
        entries = [Entry(_node(name, like), _node(item, like)) for name, item in value.items()]
        return _at(Node("mapping", entries, like.span), like)
    if isinstance(value, list):
        return _at(Node("sequence", [_node(item, like) for item in value], like.span), like)
    return _at(Node("scalar", value, like.span, str(value)), like)


def _at(node: Node, like: Node) -> Node:
    node.path = like.path
    return node
