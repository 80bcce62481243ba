"""Parts of a manifest as configs: a mapping inside it, a list of flags, keys under other names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...formats.core.placeholders import is_blank
from ...hardware.catalogue import UnknownGpu
from ...hardware.catalogue import parse as parse_gpu
from ...source.document import Document
from ...source.node import Entry, Node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..launch import Resources


def renamed(document: Document, key: str, entry: Entry) -> Entry:
    """An entry under the name that the started program gives it; it keeps its place and its spelling in the file."""
    node = key_node(document, key, entry.key)
    node.raw = entry.key.raw
    return Entry(node, entry.value)


def stated(document: Document, key: str, value: Node) -> Entry:
    """A value as the entry of a key that the file does not spell out."""
    return Entry(key_node(document, key, value), value)


def key_node(document: Document, key: str, like: Node) -> Node:
    """A key at the place of another node."""
    node = Node("scalar", key, like.span, key)
    node.path = document.path
    return node


def scalar_at(document: Document, value: object, like: Node) -> Node:
    """A value at the place of another node."""
    node = Node("scalar", value, like.span, str(value))
    node.path = document.path
    return node


def dashed(camel: str) -> str:
    """`maxModelLen` as `max-model-len`."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"-\1", camel).lower()


def accelerator(entry: Entry | None, document: Document, resources: Resources, names: Mapping[str, str]) -> None:
    """`H100:8`, `A100-80GB`: the kind and the number of GPUs of one node; `names` are a platform's own."""
    if entry is None or not isinstance(entry.value.value, str) or is_blank(entry.value.value):
        return
    kind, _, count = entry.value.value.partition(":")
    kind = names.get(kind, kind)
    where = (document.path, str(entry.key.value), entry.value.span)
    try:
        parse_gpu(kind)
    except UnknownGpu:
        return
    resources.state("gpu", kind, *where)
    resources.state("gpus_per_node", int(count) if count.isdigit() and int(count) else 1, *where)
