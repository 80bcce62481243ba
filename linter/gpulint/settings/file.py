"""One settings file: `gpulint.toml`, `.gpulint.toml` or `[tool.gpulint]` of a `pyproject.toml`, and what it extends."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from .globs import anchored
from .keys import KEYS, Key
from .settings import SETTINGS_NAMES, SettingsError, Suppression
from .severity import SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..source.document import Document
    from ..source.node import Entry, Node

MAX_EXTENDS = 8
_SIZE = re.compile(r"\d+(\.\d+)?\s*(%|[KMGT]i?B)")


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

    try:
        document = read(shown_path(path))
    except SourceError as error:
        raise SettingsError(str(error)) from None
    table = _table(document)
    reader = _Reader(document)
    own: Layer = {}
    overrides: list[Override] = []
    suppressions: list[Suppression] = []
    base = SettingsFile(path, ())
    for entry in table.entries() if table is not None else ():
        name = str(entry.key.value)
        if name == "extend":
            base = _extended(reader, entry, (*above, os.path.realpath(path)))
        elif name == "overrides":
            overrides += reader.overrides(entry)
        elif name == "suppressions":
            suppressions += reader.suppressions(entry)
        else:
            own[name] = reader.value(entry, reader.key(entry, KEYS))
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
    name = reader.string(entry)
    path = os.path.join(reader.folder, os.path.expanduser(name))
    if not os.path.isfile(path):
        raise reader.error(entry, f"extend refers to {name}, which does not exist")
    if os.path.realpath(path) in above:
        raise reader.error(entry, f"extend refers to {name}, which itself extends this file")
    if len(above) > MAX_EXTENDS:
        raise reader.error(entry, f"more than {MAX_EXTENDS} nested extends")
    return read_settings(path, above=above)


class _Reader:
    """Reads the entries of one settings file, errors with their place."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.folder = os.path.dirname(os.path.abspath(document.path))

    def error(self, entry: Entry, text: str) -> SettingsError:
        """An error at an entry."""
        return SettingsError(f"{self.place(entry)}: {text}")

    def place(self, entry: Entry) -> str:
        """File, line and column of an entry."""
        return f"{self.document.path}:{entry.key.span.line}:{entry.key.span.column}"

    def key(self, entry: Entry, known: Iterable[str]) -> Key:
        """The key that an entry sets; did-you-mean for one that is not known."""
        name = str(entry.key.value)
        known = (*known, "extend", "overrides", "suppressions") if known is KEYS else tuple(known)
        if name not in known:
            from difflib import get_close_matches

            near = get_close_matches(name, known, 1, 0.6) or get_close_matches(name.replace("_", "-"), known, 1, 0.6)
            advice = f"; did you mean {near[0]}?" if near else f"; known settings: {', '.join(known)}"
            raise self.error(entry, f"unknown setting {name!r}{advice}")
        return KEYS[name]

    def value(self, entry: Entry, key: Key) -> Value:
        """What an entry sets, checked and with paths made absolute."""
        plain = entry.value.plain()
        if not _FITS[key.kind](plain):
            raise self.error(entry, f"{key.name} must be {_TAKES[key.kind]}")
        if key.choices and plain not in key.choices:
            from difflib import get_close_matches

            near = get_close_matches(str(plain), key.choices, 1, 0.6)
            advice = f"; did you mean {near[0]}?" if near else ""
            raise self.error(entry, f"{key.name} must be one of {', '.join(key.choices)}, not {plain!r}{advice}")
        return Value(self._placed(plain, key), self.place(entry).rsplit(":", 1)[0])

    def _placed(self, plain: Any, key: Key) -> Any:
        if key.kind == "severities":
            return tuple(plain.items())
        if key.kind == "globs":
            return tuple((anchored(glob, self.folder), tuple(rules)) for glob, rules in plain.items())
        if key.kind == "strings":
            if key.field == "exclude":
                return tuple(anchored(glob, self.folder) for glob in plain)
            return tuple(os.path.join(self.folder, item) if key.paths else item for item in plain)
        return os.path.join(self.folder, plain) if key.paths else plain

    def string(self, entry: Entry) -> str:
        """A string."""
        if not isinstance(entry.value.value, str):
            raise self.error(entry, f"{entry.key.value} must be a string")
        return entry.value.value

    def strings(self, entry: Entry) -> tuple[str, ...]:
        """A list of strings."""
        plain = entry.value.plain()
        if not _FITS["strings"](plain) or not plain:
            raise self.error(entry, f"{entry.key.value} must be a list of strings")
        return tuple(plain)

    def tables(self, entry: Entry) -> Iterator[tuple[Entry, dict[str, Entry]]]:
        """The tables of `[[name]]`, each by key."""
        if not entry.value.is_sequence or not all(item.is_mapping for item in entry.value.items()):
            raise self.error(entry, f"{entry.key.value} must be a list of tables: [[{entry.key.value}]]")
        for item in entry.value.items():
            yield entry, {str(each.key.value): each for each in item.entries()}

    def overrides(self, entry: Entry) -> Iterator[Override]:
        """The `[[overrides]]`: `files` and the layered keys."""
        layered = [name for name, key in KEYS.items() if key.layered]
        for place, table in self.tables(entry):
            if "files" not in table:
                raise self.error(place, "each of [[overrides]] needs files, a list of globs")
            globs = tuple(anchored(glob, self.folder) for glob in self.strings(table.pop("files")))
            yield Override(
                globs, {name: self.value(each, self.key(each, layered)) for name, each in table.items()}
            )  # fmt: skip

    def suppressions(self, entry: Entry) -> Iterator[Suppression]:
        """The `[[suppressions]]`: `file`, `rules`, and if wanted `key` and `reason`."""
        for place, table in self.tables(entry):
            unknown = next((each for name, each in table.items() if name not in _SUPPRESSION), None)
            if unknown is not None:
                raise self.error(unknown, f"[[suppressions]] accepts only {', '.join(_SUPPRESSION)}")
            if "file" not in table or "rules" not in table:
                raise self.error(place, "each of [[suppressions]] needs file and rules")
            key, reason = (self.string(table[name]) if name in table else "" for name in ("key", "reason"))
            yield Suppression(
                anchored(self.string(table["file"]), self.folder),
                self.strings(table["rules"]),
                key,
                reason,
                self.document.path,
                table["rules"].key.span.line,
            )


_SUPPRESSION = ("file", "rules", "key", "reason")


def is_size(text: object) -> bool:
    """Whether a value is a size of memory: `2 GiB`, `5%`."""
    return isinstance(text, str) and _SIZE.fullmatch(text.strip()) is not None


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


_FITS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "size": is_size,
    "count": lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 1,
    "flag": lambda value: isinstance(value, bool),
    "strings": _is_strings,
    "versions": lambda value: isinstance(value, dict) and all(isinstance(item, str) for item in value.values()),
    "globs": lambda value: isinstance(value, dict) and all(_is_strings(item) for item in value.values()),
    "severities": lambda value: isinstance(value, dict) and all(item in SEVERITIES for item in value.values()),
}
_TAKES = {
    "string": "a string",
    "size": 'a size such as "2 GiB" or "5%"',
    "count": "a whole number of at least 1",
    "flag": "true or false",
    "strings": "a list of strings",
    "versions": 'a table of strings, such as transformers = "4.57"',
    "globs": 'a table of lists, such as "old/**" = ["GPU401"]',
    "severities": 'a table of error, warning or info, such as memory-tight = "error"',
}
