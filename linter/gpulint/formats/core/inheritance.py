"""Configs that build on others: `defaults: ../grpo_math_1B.yaml`, own keys over those of the named files.

A file of the project is read and keeps its places; one that the tool ships is known from the facts in
`<format>_shipped.json`, which `scripts/refresh.py` takes from its repository.
"""

from __future__ import annotations

import json
import os
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ...source.document import SourceError
from ...source.node import Entry, Node
from . import references

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...source.document import Document
    from .format import Problem, Project

MAX_DEPTH = 10
"""Files that build on files."""

MAX_NODES = 200_000
"""Entries that are copied while files are laid over each other; aliases could make more of them."""


class Inherited(NamedTuple):
    """The merged document, the files that it was made from by what names them, and those that are missing."""

    document: Document
    references: dict[str, Document]
    problems: list[Problem]


def inherited(document: Document, project: Project, shipped: str, key: str = "defaults") -> Inherited:
    """`document` with what it inherits through `key`; `shipped` names the format whose shipped files are known."""
    walk = _Walk(project, shipped, key)
    root = walk.resolve(document.root, document.path, "", 0, checked=True)
    return Inherited(document._replace(roots=[root, *document.roots[1:]]), walk.references, walk.problems)


class _Walk:
    def __init__(self, project: Project, shipped: str, key: str) -> None:
        self.project = project
        self.shipped = shipped
        self.key = key
        self.references: dict[str, Document] = {}
        self.problems: list[Problem] = []
        self.left = MAX_NODES

    def resolve(self, root: Node, path: str, place: str, depth: int, *, checked: bool = False) -> Node:
        """The mapping over all that it names; `place` is where shipped files look each other up, "" for real ones."""
        entry = root.entry(self.key)
        named = entry.value.plain() if entry is not None else None
        names = [named] if isinstance(named, str) else named if isinstance(named, list) else []
        base: Node | None = None
        for name in names:
            if not isinstance(name, str) or name == "_self_" or depth >= MAX_DEPTH or entry is None:
                continue
            found = self.find(name, path, place)
            if isinstance(found, str):
                if checked:
                    missing = references.Found(None, reason=found)
                    self.problems.append(references.unresolved(entry, self.key, name, missing, "nothing"))
                continue
            parent = self.resolve(found.root, found.path, found.place, depth + 1)
            own = parent if found.place else self.placed(parent, found.path)
            base = own if base is None else self.laid(base, own)
        return root if base is None else self.laid(base, root)

    def find(self, name: str, path: str, place: str) -> _Parent | str:
        """The file that is named: of the project, shipped, or the reason why there is none."""
        document = None
        if not place:
            try:
                document = self.project.open(name, path)
            except SourceError as error:
                return str(error)
        if document is not None and document.roots and document.root.is_mapping:
            self.references[f"{self.key}: {name}"] = document
            return _Parent(document.root, document.path, "")
        known = shipped_file(self.shipped, name, place)
        if known is None:
            return "not found"
        upstream, config = shipped_files(self.shipped)["upstream"], shipped_files(self.shipped)["files"][known]
        node = references.plain_node(config)
        return _Parent(self.placed(node, f"{known} (as {upstream} ships it)"), path, known)

    def placed(self, node: Node, path: str) -> Node:
        """A copy whose nodes say that they stand in `path`; those that say so already keep what they say."""
        self.left -= 1
        if self.left < 0:
            return node
        copy = Node(node.kind, node.value, node.span, node.raw)
        copy.path, copy.merged = node.path or path, node.merged
        if node.kind == "mapping":
            copy.value = [Entry(self.placed(key, path), self.placed(value, path)) for key, value in node.value]
        elif node.kind == "sequence":
            copy.value = [self.placed(item, path) for item in node.value]
        return copy

    def laid(self, base: Node, over: Node) -> Node:
        """`base` with the entries of `over` in it; mappings are merged, `_override_: true` replaces one whole."""
        root = Node("mapping", list(base.entries()), over.span, over.raw)
        root.path, root.merged = over.path, 0
        for entry in over.entries():
            self.left -= 1
            below = root.entry(entry.key.value) if isinstance(entry.key.value, str) else None
            replaces = entry.value.is_mapping and getattr(entry.value.get("_override_"), "value", False) is True
            if (
                below is not None
                and below.value.is_mapping
                and entry.value.is_mapping
                and not replaces
                and self.left > 0
            ):
                entry = Entry(entry.key, self.laid(below.value, entry.value))
            if below is not None:
                root.value.remove(below)
            root.value.append(entry)
        return root


class _Parent(NamedTuple):
    root: Node
    path: str
    place: str


@cache
def shipped_files(format_: str) -> dict[str, Any]:
    """The configs that a tool ships, as far as they decide memory: `upstream` and `files` by path."""
    path = os.path.join(
        os.path.dirname(os.path.dirname(__file__)), format_.partition("_")[0], f"{format_}_shipped.json"
    )
    with open(path, encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


def shipped_file(format_: str, name: str, place: str = "") -> str | None:
    """The path of the shipped file that a reference means, seen from the shipped file `place` or by its last parts."""
    files = shipped_files(format_)["files"]
    if place:
        path = os.path.normpath(os.path.join(os.path.dirname(place), name)).replace(os.sep, "/")
        return path if path in files else None
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("..", ".", "")]
    elsewhere = name.startswith(("/", "$"))
    for here in range(max(1, len(parts) - _TELLING + 1) if elsewhere else 1):
        ending = "/" + "/".join(parts[here:])
        found: str | None = next((path for path in files if ("/" + path).endswith(ending)), None)
        if found is not None:
            return found
    return None


_TELLING = 3
"""Parts of a path, `examples/configs/sft.yaml`, that tell a shipped file behind a folder that nobody knows."""


class Base(NamedTuple):
    """A document laid over a shipped config, and what the nodes of that say as their path."""

    document: Document
    path: str


def based_on(
    document: Document,
    format_: str,
    name: str,
    moved: Mapping[str, Any] | None = None,
    own: Document | None = None,
) -> Base:
    """`document` over the shipped config `name`, without looking at what it says it inherits.

    `moved` are the values that an older release ships, by dotted key; `own` is the repository's file of that name.
    """
    facts = shipped_files(format_)
    shipped = facts["files"][name]
    for dotted, value in (moved or {}).items():
        shipped = _with(shipped, dotted.split("."), value)
    path = f"{name} (as {facts['upstream']} ships it)"
    walk = _Walk(None, format_, "")  # type: ignore[arg-type]
    root = walk.placed(references.plain_node(shipped), path)
    if own is not None:
        root = walk.laid(root, walk.placed(own.root, own.path))
    root = walk.laid(root, document.root)
    return Base(document._replace(roots=[root, *document.roots[1:]]), path)


def _with(mapping: dict[str, Any], keys: list[str], value: Any) -> dict[str, Any]:
    """A copy of a mapping in which one nested value is another."""
    inner = _with(mapping.get(keys[0], {}), keys[1:], value) if len(keys) > 1 else value
    return {**mapping, keys[0]: inner}
