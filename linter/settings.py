"""Settings: what one run was asked to do, from `gpulint.toml` or `[tool.gpulint]`, then the command line."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields, replace
from typing import Any

from .finding import SEVERITIES
from .source.document import Document, SourceError
from .source.node import Node

FAIL_ON = (*reversed(SEVERITIES), "never")
_ROOT_MARKS = ("gpulint.toml", ".git", "pyproject.toml")


class SettingsError(Exception):
    """Settings that cannot be followed; the message is one line for people."""


@dataclass(slots=True, frozen=True)
class Settings:
    """What to check and against which hardware.

    `gpu`, `gpus`, `nodes` come from the command line and win over everything; `configured_gpu` and
    `configured_gpus` come from the settings file and lose to what a config says of itself.
    `versions` are those of packages, by name; `given_versions` come from the command line and win over a launcher's.
    `rules` are folders with rule files of the user's own.
    """

    gpu: str | None = None
    gpus: int | None = None
    nodes: int | None = None
    configured_gpu: str | None = None
    configured_gpus: int | None = None
    configured_nodes: int | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    preview: bool = False
    fail_on: str = "error"
    skip_unknown: bool = False
    root: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    given_versions: dict[str, str] = field(default_factory=dict)

    def with_options(self, **options: Any) -> Settings:
        """A copy with the options that were given (not None, not empty)."""
        return replace(self, **{name: value for name, value in options.items() if value not in (None, (), {})})


def project_root(path: str) -> str:
    """The nearest folder at or above `path` with a `gpulint.toml`, `.git` or `pyproject.toml`; else `path`."""
    start = os.path.realpath(path)
    folder = start
    while True:
        if any(os.path.exists(os.path.join(folder, mark)) for mark in _ROOT_MARKS):
            return folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return start
        folder = parent


def load(config: str | None = None, *, isolated: bool = False, directory: str = ".") -> Settings:
    """The settings file that counts for `directory`, or `config`; `isolated` reads none.

    Raises SettingsError with file, line and what is wrong.
    """
    root = project_root(directory)
    if isolated:
        return Settings(root=root)
    if config is not None:
        return _from_file(config, root) or Settings(root=root)
    for name in ("gpulint.toml", "pyproject.toml"):
        path = os.path.join(root, name)
        if os.path.isfile(path):
            settings = _from_file(path, root)
            if settings is not None:
                return settings
    return Settings(root=root)


def _from_file(path: str, root: str) -> Settings | None:
    from .source.read import read

    if os.path.basename(path) == "pyproject.toml":
        with open(path, encoding="utf-8", errors="replace") as file:
            if "[tool.gpulint" not in file.read():
                return None
    try:
        document = read(path)
    except SourceError as error:
        raise SettingsError(str(error)) from None
    table: Node | None = document.root
    if os.path.basename(path) == "pyproject.toml":
        entry = document.root.find("tool.gpulint")
        table = entry.value if entry else None
    if table is None:
        return None
    return _settings(document, table, root)


_KEYS: dict[str, tuple[str, type[Any]]] = {
    "gpu": ("configured_gpu", str),
    "gpus": ("configured_gpus", int),
    "nodes": ("configured_nodes", int),
    "select": ("select", list),
    "ignore": ("ignore", list),
    "exclude": ("exclude", list),
    "rules": ("rules", list),
    "preview": ("preview", bool),
    "fail-on": ("fail_on", str),
    "versions": ("versions", dict),
}
"""Keys of the settings file, the field each sets, and its type. `schemas/settings.json` says the same."""


def _settings(document: Document, table: Node, root: str) -> Settings:
    values: dict[str, Any] = {}
    for entry in table.entries():
        key, node = str(entry.key.value), entry.value
        place = f"{document.path}:{entry.key.span.line}:{entry.key.span.column}"
        if key not in _KEYS:
            raise SettingsError(f"{place}: unknown setting {key!r}; known are {', '.join(_KEYS)}")
        name, kind = _KEYS[key]
        value: Any = node.plain()
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise SettingsError(f"{place}: {key} takes {_TYPE_NAMES[kind]}")
        if kind is int and value < 1:
            raise SettingsError(f"{place}: {key} takes a number of at least 1")
        if kind is dict and not all(isinstance(name, str) and isinstance(item, str) for name, item in value.items()):
            raise SettingsError(f'{place}: {key} takes a table of strings, such as transformers = "4.57"')
        if kind is list:
            if not all(isinstance(item, str) for item in value):
                raise SettingsError(f"{place}: {key} takes a list of strings")
            value = tuple(value)
        values[name] = value
    if values.get("fail_on", "error") not in FAIL_ON:
        raise SettingsError(f"{document.path}: fail-on takes one of {', '.join(FAIL_ON)}")
    if "rules" in values:
        folder = os.path.dirname(os.path.abspath(document.path))
        values["rules"] = tuple(os.path.join(folder, item) for item in values["rules"])
    return Settings(root=root, **values)


_TYPE_NAMES = {
    str: "a string",
    int: "a whole number",
    bool: "true or false",
    list: "a list of strings",
    dict: "a table of strings",
}

assert {name for name, _ in _KEYS.values()} <= {item.name for item in fields(Settings)}
