"""What the files of a tool are known by.

A tool names its own keys alone. What many tools have says little and weighs little, so a file of another tool is
claimed by that one with more weight, and nobody lists the keys that must be absent.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ...source.document import Document
    from ...source.node import Node

OWN, TELLING, SHARED = 10, 3, 1
"""Weights: a key that no other tool has, one that few have, and one that many have."""


MOSTLY = 0.51
"""More than half of a file's keys."""

FILES = frozenset({"yaml", "json"})
"""How most files are written. TOML is "toml", the arguments of a command "flags"."""


class Sign(NamedTuple):
    """`least` of the dotted `keys`, which together weigh `weight`.

    An underscore in a key stands for a dash, too; a dash stands for itself. `shape` is what the value is ("section",
    "value", or "switch" for a section or a boolean), `pattern` what a value says.
    """

    weight: int
    keys: tuple[str, ...]
    least: int = 1
    shape: str = ""
    pattern: str = ""

    def is_met(self, root: Node, names: frozenset[str]) -> bool:
        """Whether a file has enough of the keys; `names` are those of its top level (`top_names`)."""
        found = (key for key in self.keys if self._is_in(root, key, names))
        return len(tuple(islice(found, self.least))) == self.least

    def _is_in(self, root: Node, key: str, names: frozenset[str]) -> bool:
        if key.partition(".")[0] not in names:
            return False
        if "." not in key and not self.shape:
            return True
        node = _value(root, key)
        if node is None or not _has_shape(node, self.shape):
            return False
        return not self.pattern or re.search(self.pattern, str(node.value)) is not None


class Claim(NamedTuple):
    """Signs that a file must have, all of them, to be of a tool.

    syntaxes   how such a file is written
    known      the least share of its top-level keys that the tool's schema must know
    plain      keys that have no keys below them where they are there; "*" is any key
    """

    signs: tuple[Sign, ...]
    syntaxes: frozenset[str] = FILES
    known: float = 0.0
    plain: tuple[str, ...] = ()

    def weight(self, document: Document, names: frozenset[str], tool: str) -> int:
        """What the signs weigh together; 0 where one of them is missing."""
        root = document.root
        if document.syntax not in self.syntaxes or not all(sign.is_met(root, names) for sign in self.signs):
            return 0
        sections = [str(entry.key.value) for entry in root.entries() if entry.value.is_mapping] if self.plain else []
        if sections and ("*" in self.plain or not set(self.plain).isdisjoint(sections)):
            return 0
        if self.known and _share_known(root, tool) < self.known:
            return 0
        return sum(sign.weight for sign in self.signs)


class Signature(NamedTuple):
    """What the files of a tool are known by.

    module   the one below `formats` that reads them
    words    the claims in words, for the page of formats
    claims   any of them suffices
    """

    module: str
    words: str
    claims: tuple[Claim, ...]


def signature(module: str, words: str, *claims: Claim) -> Signature:
    """The signature of a tool with these claims; none where its flags stand in launchers alone."""
    return Signature(module, words, claims)


def claim(*signs: Sign, syntaxes: frozenset[str] = FILES, known: float = 0.0, plain: tuple[str, ...] = ()) -> Claim:
    """A claim of these signs."""
    return Claim(signs, syntaxes, known, plain)


def any_of(weight: int, *keys: str, least: int = 1) -> Sign:
    """One of the keys, or `least` of them."""
    return Sign(weight, keys, least)


def below(section: str, *keys: str) -> tuple[str, ...]:
    """The keys below a section's."""
    return tuple(f"{section}.{key}" for key in keys)


def section(weight: int, *keys: str) -> Sign:
    """One of the keys with keys below it."""
    return Sign(weight, keys, shape="section")


def switch(weight: int, *keys: str) -> Sign:
    """One of the keys with keys below it, or switched on or off."""
    return Sign(weight, keys, shape="switch")


def value(weight: int, *keys: str) -> Sign:
    """One of the keys with a plain value."""
    return Sign(weight, keys, shape="value")


def says(weight: int, key: str, pattern: str) -> Sign:
    """A key with a value that a regular expression finds something in."""
    return Sign(weight, (key,), shape="value", pattern=pattern)


def top_names(root: Node) -> frozenset[str]:
    """The keys of the top level, as written and with underscores."""
    written = {str(entry.key.value) for entry in root.entries()}
    return frozenset(written | {name.replace("-", "_") for name in written})


def _value(root: Node, key: str) -> Node | None:
    entry = root.find(key) or root.find(key.replace("_", "-"))
    return entry.value if entry else None


def _has_shape(node: Node, shape: str) -> bool:
    if shape == "switch":
        return node.is_mapping or isinstance(node.value, bool)
    return not shape or (node.is_mapping if shape == "section" else node.is_scalar)


def _share_known(root: Node, tool: str) -> float:
    from .keys import load  # schemas are read for the few files whose other signs are met

    known = {name.replace("-", "_") for name in load(tool)["properties"]}
    names = [str(entry.key.value).partition(".")[0].replace("-", "_") for entry in root.entries()]
    return sum(name in known for name in names) / len(names)
