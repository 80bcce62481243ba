"""One settings file: `gpulint.toml`, `.gpulint.toml` or `[tool.gpulint]` of a `pyproject.toml`, and what it extends."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ..upstream.packages import known_package
from .globs import anchored
from .keys import KEYS, SIZE, Key
from .settings import SETTINGS_NAMES, SettingsError, Suppression

if TYPE_CHECKING:
    from ..source.document import Document
    from ..source.node import Entry, Node

MAX_EXTENDS = 8


class Value(NamedTuple):
    """A setting and who set it: a file with its line, an option, an environment variable."""

    value: Any
    origin: str


Layer = dict[str, Value]
"""Settings by key name."""


class Override(NamedTuple):
    """What an `[[overrides]]` table sets for the files of its globs, which are absolute."""

    globs: tuple[str, ...]
    layer: Layer


class SettingsFile(NamedTuple):
    """A settings file read: `layers` holds what it extends, outermost first, then its own."""

    path: str
    layers: tuple[Layer, ...]
    overrides: tuple[Override, ...] = ()
    suppressions: tuple[Suppression, ...] = ()


def nearest(folder: str) -> str | None:
    """The settings file that counts for a folder: the closest at or above it, no further up than a `.git`."""
    folder = os.path.realpath(folder)
    while True:
        for name in SETTINGS_NAMES:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and (name != "pyproject.toml" or _has_table(path)):
                return path
        parent = os.path.dirname(folder)
        if parent == folder or os.path.exists(os.path.join(folder, ".git")):
            return None
        folder = parent


def read_settings(path: str, *, above: tuple[str, ...] = ()) -> SettingsFile:
    """A settings file with all that it extends. Raises SettingsError with file, line and what is wrong."""
    from ..source.document import SourceError
    from ..source.read import read
    from ..source.referenced import shown_path
    from ..source.schema import first_fault, load_schema

    try:
        document = read(shown_path(path))
    except SourceError as error:
        raise SettingsError(str(error)) from None
    table = _table(document)
    reader = _Reader(document)
    fault = first_fault(table, load_schema("settings"), "the settings", "table") if table is not None else None
    if fault is not None:
        raise reader.error(fault.node, fault.reason)
    own: Layer = {}
    overrides: list[Override] = []
    suppressions: list[Suppression] = []
    base = SettingsFile(path, ())
    for entry in table.entries() if table is not None else ():
        name = entry.key.value
        if name == "extend":
            base = _extended(reader, entry, (*above, os.path.realpath(path)))
        elif name == "overrides":
            overrides += map(reader.override, entry.value.items())
        elif name == "suppressions":
            suppressions += map(reader.suppression, entry.value.items())
        else:
            own[name] = reader.value(entry)
    return SettingsFile(
        path, (*base.layers, own), (*base.overrides, *overrides), (*base.suppressions, *suppressions)
    )  # fmt: skip


def _has_table(path: str) -> bool:
    with open(path, encoding="utf-8", errors="replace") as file:
        return "[tool.gpulint" in file.read(1 << 20)


def _table(document: Document) -> Node | None:
    if os.path.basename(document.path) != "pyproject.toml":
        return document.root
    entry = document.root.find("tool.gpulint")
    return entry.value if entry else None


def _extended(reader: _Reader, entry: Entry, above: tuple[str, ...]) -> SettingsFile:
    name: str = entry.value.value
    path = os.path.join(reader.folder, os.path.expanduser(name))
    if not os.path.isfile(path):
        raise reader.error(entry.key, f"extend names {name}, which is not there")
    if os.path.realpath(path) in above:
        raise reader.error(entry.key, f"extend names {name}, which extends this file")
    if len(above) > MAX_EXTENDS:
        raise reader.error(entry.key, f"more than {MAX_EXTENDS} files extend one another")
    return read_settings(path, above=above)


class _Reader:
    """Reads the entries of one settings file that fits the schema of settings."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.folder = os.path.dirname(os.path.abspath(document.path))

    def error(self, node: Node, text: str) -> SettingsError:
        """An error at a key or value."""
        return SettingsError(f"{self.document.path}:{node.span.line}:{node.span.column}: {text}")

    def value(self, entry: Entry) -> Value:
        """What an entry sets, with paths made absolute."""
        key, plain = KEYS[entry.key.value], entry.value.plain()
        if key.type == "Versions":
            plain = dict(map(self._release, entry.value.entries()))
        return Value(self._placed(plain, key), f"{self.document.path}:{entry.key.span.line}")

    def _release(self, entry: Entry) -> tuple[str, str]:
        """A package by its own name, and its release."""
        try:
            return known_package(str(entry.key.value)), entry.value.value
        except ValueError as error:
            raise self.error(entry.key, str(error)) from None

    def _placed(self, plain: Any, key: Key) -> Any:
        if key.type == "Severities":
            return tuple(plain.items())
        if key.type == "Globs":
            return tuple((anchored(glob, self.folder), tuple(rules)) for glob, rules in plain.items())
        if key.type == "Strings":
            if key.field == "exclude":
                return tuple(anchored(glob, self.folder) for glob in plain)
            return tuple(os.path.join(self.folder, item) if key.paths else item for item in plain)
        return os.path.join(self.folder, plain) if key.paths else plain

    def override(self, table: Node) -> Override:
        """One of the `[[overrides]]`: `files` and the layered keys."""
        globs = tuple(anchored(glob, self.folder) for glob in table.plain()["files"])
        entries = [entry for entry in table.entries() if entry.key.value != "files"]
        return Override(globs, {entry.key.value: self.value(entry) for entry in entries})

    def suppression(self, table: Node) -> Suppression:
        """One of the `[[suppressions]]`."""
        plain = table.plain()
        rules = table.entry("rules")
        return Suppression(
            anchored(plain["file"], self.folder),
            tuple(plain["rules"]),
            plain.get("key", ""),
            plain.get("reason", ""),
            self.document.path,
            rules.key.span.line if rules is not None else table.span.line,
        )


def is_size(text: str) -> bool:
    """Whether a text is a size of memory: `2 GiB`, `5%`."""
    return re.fullmatch(SIZE, text.strip()) is not None
