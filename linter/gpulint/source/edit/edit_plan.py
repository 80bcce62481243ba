"""Changes of keys, collected by the mapping they fall in, with the tree that they should result in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from . import block_edit, flow_edit
from .edit_text import EditError, Piece, is_alias, own, same, unshared

if TYPE_CHECKING:
    from ..document import Document
    from ..node import Entry, Node


class Place(NamedTuple):
    """Where a dotted key is, or would be: its own entries in `mapping`, or the `missing` names below it.

    `parent` is the entry whose value `mapping` is. `path` are the keys that lead to the value.
    """

    mapping: Node
    parent: Entry | None
    entries: list[Entry]
    missing: list[str]
    path: list[str]


class Plan:
    """Changes collected by the mapping they fall in, and the tree that they should result in."""

    def __init__(self, document: Document, after: str | None) -> None:
        if document.syntax not in ("yaml", "json"):
            raise EditError(f"{document.syntax} files are not edited")
        self.document = document
        self.after = after.rpartition(".")[2] if after else None
        self.intended = unshared(document.root.plain())
        self.replaced: dict[int, tuple[Entry, Any]] = {}
        self.inserted: dict[int, tuple[Node, dict[str, Any]]] = {}
        self.removed: dict[int, tuple[Place, list[Entry]]] = {}
        self.renamed: list[tuple[Node, Entry, str]] = []

    def set(self, key: str, value: Any) -> None:
        """Give a dotted key a value, with the parents it lacks."""
        place = self.find(key)
        if place.entries and not place.missing:
            self.replace(key, place.entries[-1], value)
        elif place.entries:
            entry = place.entries[-1]
            _, content = self.replaced.setdefault(id(entry.key), (entry, {}))
            _put(content, place.missing, value)
        else:
            _, content = self.inserted.setdefault(id(place.mapping), (place.mapping, {}))
            _put(content, place.missing, value)
        if self.intended is None:
            self.intended = {}
        _put(self.intended, place.path, value)

    def replace(self, key: str, entry: Entry, value: Any) -> None:
        """Change what differs within a mapping where the two have a key in common, else all of it."""
        old = entry.value
        if same(unshared(old.plain()), value):
            return
        names = set(old.keys())
        if (
            isinstance(value, dict)
            and old.kind == "mapping"
            and not old.merged
            and not is_alias(entry)
            and len(names) == len(old.entries())
            and names & value.keys()
            and not any("." in name for name in names | value.keys())
        ):
            for name in sorted(names - value.keys()):
                self.remove(f"{key}.{name}")
            for name, item in value.items():
                self.set(f"{key}.{name}", item)
        else:
            self.replaced[id(entry.key)] = (entry, value)

    def remove(self, key: str) -> None:
        """Take a dotted key out, with every duplicate."""
        place = self.find(key)
        if not place.entries or place.missing:
            raise EditError(f"there is no key {key}")
        _, entries = self.removed.setdefault(id(place.mapping), (place, []))
        entries += place.entries
        _at(self.intended, place.path[:-1]).pop(place.path[-1], None)

    def rename(self, key: str, new: str) -> None:
        """Give the last name of a dotted key another spelling."""
        place = self.find(key)
        if not place.entries or place.missing:
            raise EditError(f"there is no key {key}")
        if place.mapping.entry(new):
            raise EditError(f"there is already a key {new}")
        self.renamed += ((place.mapping, entry, new) for entry in place.entries)
        parent = _at(self.intended, place.path[:-1])
        parent[new] = parent.pop(place.path[-1], None)

    def find(self, key: str) -> Place:
        """The place of a key, walking as `Node.find` does but never through merges and aliases."""
        node, rest = self.document.root, key
        parent: Entry | None = None
        path: list[str] = []
        if node.kind != "mapping":
            if node.kind == "scalar" and node.value is None and not node.raw:
                return Place(node, None, [], key.split("."), key.split("."))
            raise EditError("the file has no mapping")
        while True:
            entries = _entries(node, rest)
            if any(entry.key.path and entry.key.path != self.document.path for entry in entries):
                raise EditError(f"{rest} is in another file")
            if entries:
                return Place(node, parent, entries, [], [*path, rest])
            head, dot, tail = rest.partition(".")
            entries = _entries(node, head) if dot else []
            if not entries:
                names = rest.split(".")
                return Place(node, parent, [], names, path + names)
            entry = entries[-1]
            path.append(head)
            if is_alias(entry):
                raise EditError(f"{head} is an alias: its keys belong to another place")
            if entry.value.kind == "scalar" and entry.value.value is None:
                return Place(node, parent, [entry], tail.split("."), path + tail.split("."))
            if entry.value.kind != "mapping":
                raise EditError(f"{head} is no mapping")
            node, parent, rest = entry.value, entry, tail

    def pieces(self) -> list[Piece]:
        """Every replacement of text, in no order."""
        document = self.document
        pieces: list[Piece] = []
        for entry, value in self.replaced.values():
            pieces += (flow_edit if self.in_braces(entry) else block_edit).replace(document, entry, value)
        for mapping, values in self.inserted.values():
            pieces.append(self.insertion(mapping, values))
        for place, entries in self.removed.values():
            if _braces(document, place.mapping):
                pieces += flow_edit.remove(document, place.mapping, entries)
            elif place.parent and len(entries) == len(place.mapping.entries()):
                pieces += block_edit.replace(document, place.parent, {})
            else:
                pieces += block_edit.remove(document, place.mapping, entries)
        for mapping, entry, new in self.renamed:
            pieces.append(Piece(entry.key.span.start, entry.key.span.end, self.key_text(mapping, new)))
        return pieces

    def insertion(self, mapping: Node, values: dict[str, Any]) -> Piece:
        """New entries of one mapping, all at one place."""
        if mapping.kind == "scalar":
            if self.document.syntax == "json":
                raise EditError("the file has no mapping")
            return block_edit.fill(self.document, values)
        gone = {id(entry.key) for _, entries in self.removed.values() for entry in entries}
        here = (None, "", self.document.path)
        entries = [entry for entry in own(mapping) if id(entry.key) not in gone and entry.key.path in here]
        if own(mapping) and not entries:
            raise EditError("every key of the mapping is to be removed")
        holding = [entry for entry in entries if _takes_followers(self.document, entry)]
        named = [entry for entry in entries if entry.key.value == self.after]
        near = next((chosen[-1] for chosen in (named, holding, entries) if chosen), None)
        insert = flow_edit.insert if _braces(self.document, mapping) else block_edit.insert
        return insert(self.document, mapping, values, near)

    def in_braces(self, entry: Entry) -> bool:
        """Whether an entry stands within braces at any level."""
        node = self.document.root
        offset = entry.key.span.start
        while node.kind != "scalar":
            if self.document.text[node.span.start] in "[{":
                return True
            inner = (each.value for each in own(node)) if node.kind == "mapping" else node.value
            found = next((each for each in inner if each.span.start <= offset < each.span.end), None)
            if found is None:
                return False
            node = found
        return False

    def key_text(self, mapping: Node, name: str) -> str:
        """A key as this mapping would hold it."""
        if self.document.syntax == "json":
            import json

            return json.dumps(name, ensure_ascii=False)
        from .yaml_writer import key

        return key(name, flow=_braces(self.document, mapping))


def _entries(mapping: Node, name: str) -> list[Entry]:
    """The own entries of a mapping with this key. Raises EditError where only a merge gives it."""
    found = [entry for entry in own(mapping) if entry.key.value == name]
    if not found and mapping.entry(name):
        raise EditError(f"{name} comes from a merge (<<)")
    return found


def _takes_followers(document: Document, entry: Entry) -> bool:
    """Whether an entry holds a value that stays the same when a line follows it.

    A block scalar that ends the file without a line break would gain one.
    """
    value = entry.value
    if value.kind != "scalar":
        return True
    return value.value is not None and not (value.raw[:1] in ("|", ">") and value.span.end == len(document.text))


def _braces(document: Document, mapping: Node) -> bool:
    return document.text.startswith("{", mapping.span.start)


def _at(tree: Any, path: list[str]) -> Any:
    for name in path:
        tree = tree.get(name) if isinstance(tree, dict) else None
    if not isinstance(tree, dict):
        raise EditError("the changes contradict each other")
    return tree


def _put(tree: Any, path: list[str], value: Any) -> None:
    for name, below in zip(path, [*path[1:], None], strict=True):
        if not isinstance(tree, dict):
            raise EditError(f"the parent of {name} cannot be both a value and a mapping")
        if below is None:
            tree[name] = value
            return
        if tree.get(name) is None:
            tree[name] = {}
        tree = tree[name]
