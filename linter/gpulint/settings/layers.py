"""Which settings count for a path: the closest file, what it says of some paths, then the command line."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .file import Layer, SettingsFile, Value, nearest, read_settings
from .globs import matches
from .keys import KEYS
from .settings import Settings, SettingsError, project_root

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Layers:
    """The settings of a run. `given` are the options, by field of Settings, each with the word that gave it.

    `config` is read instead of the closest file; `isolated` reads none.
    """

    def __init__(
        self, given: Mapping[str, Value] | None = None, config: str | None = None, *, isolated: bool = False
    ) -> None:
        self.given = dict(given or {})
        self.config = config
        self.isolated = isolated
        self.folders: tuple[str, ...] = ()
        self.files: frozenset[str] | None = None
        self._files: dict[str, SettingsFile | None] = {}
        self._settings: dict[tuple[str, tuple[int, ...], bool], Settings] = {}

    def of(self, path: str) -> Settings:
        """The settings for a file or folder. Raises SettingsError with file, line and what is wrong."""
        folder = path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path))
        file = self._file(folder)
        chosen = _matching(file, path)
        met = self.files is not None and os.path.realpath(path) not in self.files
        key = (os.path.realpath(folder), chosen, met)
        if key not in self._settings:
            found = self._combined(file, chosen, project_root(folder, self.folders))
            self._settings[key] = replace(found, fills_in=met or found.skip_unknown)
        return self._settings[key]

    def within(self, paths: Iterable[str]) -> None:
        """The folders and files that the user named.

        Each folder is the root of what lies in it and in no project. Hardware that the user named replaces what a
        named file states, and is that of the jobs in other files that state none; nobody names the files of a hook.
        """
        named = tuple(paths)
        self.folders = tuple(path for path in named if os.path.isdir(path))
        self.files = frozenset(os.path.realpath(path) for path in named if path not in self.folders)
        self._settings.clear()

    def forget(self) -> None:
        """Read the settings files again when they are next asked for."""
        self._files.clear()
        self._settings.clear()

    def values(self, path: str) -> dict[str, Value]:
        """Each setting that is not its default, by key, with who set it; options under the name of their field."""
        folder = path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path))
        file = self._file(folder)
        return {**_merged(_layers(file, _matching(file, path))), **self.given}

    def file(self, path: str) -> str | None:
        """The settings file that counts for a path."""
        file = self._file(path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path)))
        return file.path if file is not None else None

    def _file(self, folder: str) -> SettingsFile | None:
        if self.isolated:
            return None
        if self.config is not None and not os.path.isfile(self.config):
            raise SettingsError(f"{self.config}: no such settings file")
        path = self.config or nearest(folder)
        if path is None:
            return None
        if path not in self._files:
            self._files[path] = read_settings(path)
        return self._files[path]

    def _combined(self, file: SettingsFile | None, chosen: tuple[int, ...], root: str) -> Settings:
        fields: dict[str, Any] = {"root": root}
        merged = _merged(_layers(file, chosen))
        for name, value in sorted(merged.items(), key=lambda item: KEYS[item[0]].adds):
            key = KEYS[name]
            fields[key.field] = (*fields.get(key.field, ()), *value.value) if key.adds else value.value
        for name, value in self.given.items():
            fields[name] = (*fields.get(name, ()), *value.value) if name in _ADDED else value.value
            if name == "select":
                fields.pop("extend_select", None)
        return Settings(suppressions=file.suppressions if file is not None else (), **fields)


_ADDED = ("extend_select", "ignore", "exclude", "rules")
"""Options that add to what the settings file says."""


def load(config: str | None = None, *, isolated: bool = False, directory: str = ".") -> Settings:
    """The settings that count for `directory`, from `config` or the closest file; `isolated` reads none.

    Raises SettingsError with file, line and what is wrong.
    """
    return Layers(config=config, isolated=isolated).of(directory)


def _matching(file: SettingsFile | None, path: str) -> tuple[int, ...]:
    """The numbers of the `[[overrides]]` that a path falls under."""
    full = os.path.abspath(path)
    return tuple(
        number
        for number, override in enumerate(file.overrides if file is not None else ())
        if matches(full, *override.globs)
    )


def _layers(file: SettingsFile | None, chosen: Iterable[int]) -> list[Layer]:
    if file is None:
        return []
    return [*file.layers, *(file.overrides[number].layer for number in chosen)]


def _merged(layers: Iterable[Layer]) -> Layer:
    """Layers as one: the last that sets a key counts; `extend-...` and tables gather, until the key itself is set."""
    merged: Layer = {}
    for layer in layers:
        for name in layer:
            merged.pop(f"extend-{name}", None)
        for name, value in layer.items():
            before = merged.get(name)
            if before is not None and KEYS[name].type == "Versions":
                value = Value({**before.value, **value.value}, f"{before.origin}, {value.origin}")
            elif before is not None and (KEYS[name].adds or KEYS[name].type in ("Globs", "Severities")):
                value = Value((*before.value, *value.value), f"{before.origin}, {value.origin}")
            merged[name] = value
    return merged
