"""The keys of a settings file, as data: `schemas/settings.json`, the settings page and every check are made of them."""

from __future__ import annotations

from typing import NamedTuple

from .severity import SEVERITIES

FAIL_ON = (*reversed(SEVERITIES), "never")
SIZE = r"[0-9]+(\.[0-9]+)?\s*(%|[KMGT]i?B)"
"""A size of memory: a number with its unit, or the share of a GPU."""


class Key(NamedTuple):
    """One key: what it takes and means.

    kind      `string`, `size` ("2 GiB" or "5%"), `count` (a whole number from 1), `flag`, `strings`, `versions`
              (package -> version), `globs` (glob -> rules) or `severities` (rule -> severity)
    field     the field of Settings that it sets
    layered   whether `[[overrides]]` may set it for some paths only
    adds      whether its strings add to those of the field that an earlier layer set, instead of replacing them
    paths     whether its strings are paths or globs, relative to the folder of the settings file
    """

    name: str
    kind: str
    field: str
    meaning: str
    choices: tuple[str, ...] = ()
    layered: bool = False
    adds: bool = False
    paths: bool = False


_ALL = (
    Key("gpu", "string", "configured_gpu", "GPU to check against, such as h100-80gb.", layered=True),
    Key("gpus", "count", "configured_gpus", "Number of GPUs of the job, over all nodes.", layered=True),
    Key("nodes", "count", "configured_nodes", "Number of nodes.", layered=True),
    Key("headroom", "size", "headroom", 'Memory to keep free on each GPU, such as "2 GiB" or "5%".', layered=True),
    Key("versions", "versions", "versions", "Package versions, unless a launcher sets them.", layered=True),
    Key("select", "strings", "select", "The only rules to run: ids, id prefixes or names.", layered=True),
    Key(
        "extend-select",
        "strings",
        "extend_select",
        "Additional rules, including preview rules.",
        layered=True,
        adds=True,
    ),
    Key("ignore", "strings", "ignore", "Rules to disable.", layered=True),
    Key("extend-ignore", "strings", "ignore", "Additional rules to disable.", layered=True, adds=True),
    Key("per-file-ignores", "globs", "per_file_ignores", "Rules to disable in files that match a glob.", paths=True),
    Key("severity", "severities", "severity", "Severity of rules, by id or name, instead of their own.", layered=True),
    Key("extend-safe-fixes", "strings", "safe_fixes", "Rules whose fixes are all safe.", layered=True, adds=True),
    Key("extend-unsafe-fixes", "strings", "unsafe_fixes", "Rules whose fixes are all unsafe.", layered=True, adds=True),
    Key("preview", "flag", "preview", "Whether to run preview rules.", layered=True),
    Key("fail-on", "string", "fail_on", "Lowest severity that makes the exit code 1.", choices=FAIL_ON),
    Key("exclude", "strings", "exclude", "Globs of paths to exclude.", paths=True),
    Key("extend-exclude", "strings", "exclude", "Globs of additional paths to exclude.", adds=True, paths=True),
    Key("rules", "strings", "rules", "Directories with your own rule files.", paths=True),
    Key("models", "strings", "models", "Directories with `ORG/NAME/config.json` of your own models.", paths=True),
    Key("baseline", "string", "baseline", "Baseline file with findings that are not reported.", paths=True),
    Key("require-reasons", "flag", "require_reasons", "Whether every suppression needs a reason."),
    Key("skip-unknown", "flag", "skip_unknown", "Whether named files of unknown format are skipped."),
)
KEYS = {key.name: key for key in _ALL}
