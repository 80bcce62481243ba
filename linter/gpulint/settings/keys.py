"""The settings file, declared: `schemas/settings.json`, the page of settings and every check are made of it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, NamedTuple, get_args

from ..declared import declared
from .severity import Severity

FailOn = Literal["error", "warning", "info", "never"]
FAIL_ON = get_args(FailOn)
SIZE = r"[0-9]+(\.[0-9]+)?\s*(%|[KMGT]i?B)"
"""A size of memory: a number with its unit, or the share of a GPU."""

Strings = list[str]
Versions = dict[str, str]
"""Package -> version."""
Globs = dict[str, Strings]
"""Glob -> rules."""
Severities = dict[str, Severity]
"""Rule -> severity."""


class Sets(NamedTuple):
    """What a key sets.

    field  the field of Settings, if it is not called as the key is
    adds   whether its strings add to those of the field that an earlier layer set, instead of replacing them
    paths  whether its strings are paths or globs, relative to the folder of the settings file
    """

    field: str = ""
    adds: bool = False
    paths: bool = False


class Key(NamedTuple):
    """One key that sets a field of Settings: its type by name, and whether `[[overrides]]` may hold it."""

    name: str
    type: str
    meaning: str
    layered: bool
    field: str
    adds: bool
    paths: bool


@dataclass(kw_only=True)
class LayerTable:
    """What may be set for all files or for some paths."""

    gpu: str = declared("GPU to check against, such as h100-80gb.", None, own=Sets("configured_gpu"))
    gpus: int = declared("Number of GPUs of the job, over all nodes.", None, own=Sets("configured_gpus"), least=1)
    nodes: int = declared("Number of nodes.", None, own=Sets("configured_nodes"), least=1)
    headroom: str = declared(
        'Memory to keep free on each GPU, such as "2 GiB" or "5%".',
        None,
        own=Sets(),
        pattern=rf"^\s*{SIZE}\s*$",
        examples=["2 GiB", "5%"],
    )
    versions: Versions = declared("Package versions, unless a launcher sets them.", None, own=Sets())
    select: Strings = declared("The only rules to run: ids, id prefixes or names.", None, own=Sets())
    extend_select: Strings = declared("Additional rules, including preview rules.", None, own=Sets(adds=True))
    ignore: Strings = declared("Rules to disable.", None, own=Sets())
    extend_ignore: Strings = declared("Additional rules to disable.", None, own=Sets("ignore", adds=True))
    severity: Severities = declared("Severity of rules, by id or name, instead of their own.", None, own=Sets())
    extend_safe_fixes: Strings = declared("Rules whose fixes are all safe.", None, own=Sets("safe_fixes", adds=True))
    extend_unsafe_fixes: Strings = declared(
        "Rules whose fixes are all unsafe.", None, own=Sets("unsafe_fixes", adds=True)
    )
    preview: bool = declared("Whether to run preview rules.", None, own=Sets())


@dataclass(kw_only=True)
class OverrideTable(LayerTable):
    """Settings for some paths."""

    files: Strings = declared("Globs of the paths that these settings are for.", minItems=1)


@dataclass(kw_only=True)
class SuppressionTable:
    """Findings to suppress."""

    file: str = declared("Glob of the files.")
    rules: Strings = declared("Rules to suppress there.", minItems=1)
    key: str = declared("Only at and below this dotted key.", None)
    reason: str = declared("Why.", None)


@dataclass(kw_only=True)
class SettingsTable(LayerTable):
    """The settings file, also `[tool.gpulint]` of pyproject.toml."""

    per_file_ignores: Globs = declared("Rules to disable in files that match a glob.", None, own=Sets(paths=True))
    fail_on: FailOn = declared("Lowest severity that makes the exit code 1.", None, own=Sets())
    exclude: Strings = declared("Globs of paths to exclude.", None, own=Sets(paths=True))
    extend_exclude: Strings = declared(
        "Globs of additional paths to exclude.", None, own=Sets("exclude", adds=True, paths=True)
    )
    rules: Strings = declared("Directories with your own rule files.", None, own=Sets(paths=True))
    models: Strings = declared(
        "Directories with `ORG/NAME/config.json` of your own models.", None, own=Sets(paths=True)
    )
    baseline: str = declared("Baseline file with findings that are not reported.", None, own=Sets(paths=True))
    require_reasons: bool = declared("Whether every suppression needs a reason.", None, own=Sets())
    skip_unknown: bool = declared("Whether named files of unknown format are skipped.", None, own=Sets())
    require_verdict: bool = declared("Whether a job whose memory was not checked fails the run.", None, own=Sets())
    extend: str = declared("Settings file that this one builds on, relative to it.", None)
    overrides: list[OverrideTable] = declared("Settings for some paths.", None)
    suppressions: list[SuppressionTable] = declared("Findings to suppress.", None)


def spelled(field: str) -> str:
    """A field of these classes as the file spells it."""
    return field.replace("_", "-")


def _keys() -> dict[str, Key]:
    layered = {item.name for item in fields(LayerTable)}
    found = {}
    for item in fields(SettingsTable):
        sets = item.metadata["own"]
        if sets is not None:
            name = spelled(item.name)
            key = Key(name, str(item.type), item.metadata["description"], item.name in layered, *sets)
            found[name] = key._replace(field=sets.field or item.name)
    return found


KEYS = _keys()
