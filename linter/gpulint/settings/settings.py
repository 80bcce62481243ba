"""Settings: what one run was asked to do."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from .keys import FAIL_ON, KEYS

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["FAIL_ON", "Settings", "SettingsError", "Suppression", "project_root"]

SETTINGS_NAMES = ("gpulint.toml", ".gpulint.toml", "pyproject.toml")


class SettingsError(Exception):
    """Settings that cannot be followed; the message is one line for people."""


class Suppression(NamedTuple):
    """Findings that the settings file silences in a file: of `rules`, below `key` where one is named.

    `glob` is absolute; `file` and `line` are where the settings say so.
    """

    glob: str
    rules: tuple[str, ...]
    key: str
    reason: str
    file: str
    line: int


@dataclass(slots=True, frozen=True)
class Settings:
    """What to check and against which hardware.

    `gpu`, `gpus`, `nodes` come from the command line and win over everything; where `fills_in`, as for files met in a
    folder, they count for jobs that state no hardware of their own. `configured_gpu` and `configured_gpus` come from
    the settings file and lose to what a config says of itself.
    `versions` are those of packages, by name; `given_versions` come from the command line and win over a launcher's.
    `headroom` is memory to leave free on each GPU, "2 GiB" or "5%". `rules` and `models` are folders of the user's
    own. `exclude` and the globs of `per_file_ignores` are relative to `root`, or absolute.
    """

    gpu: str | None = None
    gpus: int | None = None
    nodes: int | None = None
    configured_gpu: str | None = None
    configured_gpus: int | None = None
    configured_nodes: int | None = None
    fills_in: bool = False
    headroom: str = ""
    select: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    severity: tuple[tuple[str, str], ...] = ()
    safe_fixes: tuple[str, ...] = ()
    unsafe_fixes: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    exclude: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    suppressions: tuple[Suppression, ...] = ()
    baseline: str = ""
    require_reasons: bool = False
    preview: bool = False
    fail_on: str = "error"
    skip_unknown: bool = False
    require_verdict: bool = False
    root: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    given_versions: dict[str, str] = field(default_factory=dict)

    def with_options(self, **options: Any) -> Settings:
        """A copy with the options that were given (not None, not empty)."""
        return replace(self, **{name: value for name, value in options.items() if value not in (None, (), {})})

    def of(self, path: str) -> Settings:  # noqa: ARG002 - as Layers.of, where paths differ
        """The settings that count for a path: these."""
        return self


def project_root(path: str, folders: Iterable[str] = ()) -> str:
    """The folder that references may not leave: the nearest at or above `path` with `.git`; else the nearest with a
    settings file or `pyproject.toml`; else the first of `folders`, which were named to be checked, or the working
    directory, if it holds `path`; else `path`."""
    start = os.path.realpath(path)
    marked = ""
    folder = start
    while True:
        if os.path.exists(os.path.join(folder, ".git")):
            return folder
        if not marked and any(os.path.exists(os.path.join(folder, name)) for name in SETTINGS_NAMES):
            marked = folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return marked or _holding(start, folders)
        folder = parent


def _holding(path: str, folders: Iterable[str]) -> str:
    for folder in (*folders, os.curdir):
        real = os.path.realpath(folder)
        if real != os.path.dirname(real) and (path == real or path.startswith(real + os.sep)):
            return real
    return path


assert {key.field for key in KEYS.values()} <= {item.name for item in fields(Settings)}
