"""A trainer's profile at the releases that a job states, and options that were removed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ...upstream import transformers, trl
from ...upstream.behaviour import default_of, earlier, former_defaults, is_release
from ...upstream.packages import gone, package_of
from .coercion import as_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ...repository.pins import Pin
    from ..hf_trainer.trainer_profiles import Flavour
    from .format import Problem


USUAL_OPTIMIZER = "adamw_torch_fused"
"""The Trainer's `optim` today. A script with one of its own keeps that in every release."""


def released(flavour: Flavour, stated: Mapping[str, str]) -> Flavour:
    """The flavour with the versions that a launcher or the settings state, and those releases' defaults.

    A release of TRL that never ran on Transformers 5 brings the last 4 along, where nothing states that.
    """
    versions = dict(flavour.versions)
    versions.update({name: version for name, version in stated.items() if is_release(version)})
    if versions == flavour.versions:
        return flavour
    if trl.NAME in stated and transformers.NAME not in stated:
        former = default_of(trl.PINS, versions.get(trl.NAME), transformers.NAME, versions.get(transformers.NAME))
        versions.update({transformers.NAME: former} if former else {})
    defaults = dict(flavour.defaults)
    packages = [(transformers.NAME, transformers.DEFAULTS), (trl.NAME, trl.DEFAULTS)]
    for package, rows in packages if flavour.trl else packages[:1]:
        if versions.get(package) == flavour.versions.get(package):
            continue
        moved = former_defaults(rows, versions[package])
        ours = {key: value for key, value in moved.items() if key in defaults}
        if ours.get("dtype") == trl.AS_TRANSFORMERS:
            ours["dtype"] = default_of(transformers.DEFAULTS, versions[transformers.NAME], "dtype", "checkpoint")
        if package == transformers.NAME and flavour.trl:
            ours.pop("dtype", None)
        if flavour.defaults.get("optim") != USUAL_OPTIMIZER:
            ours.pop("optim", None)
        defaults.update(ours)
    return flavour._replace(versions=versions, defaults=defaults)


def last_known(schema: dict[str, Any]) -> str:
    """The last release that knew a removed key; "" for one that is still there."""
    last = str(schema.get("x-removed", "")).partition(";")[0].rpartition(" ")[2]
    return last if is_release(last) else ""


def of_release(problems: Iterable[Problem], versions: Mapping[str, str], pins: Mapping[str, Pin]) -> list[Problem]:
    """The problems of keys as the stated or pinned releases have them.

    A key that a release still takes is none, nor one that went in a release between two that were read, nor a number
    of another kind than the newest release wants, or null for one. What is left names the release, and `stated` says
    whether it is one.
    """
    kept = []
    for item in problems:
        if item.kind == "deprecated-key":
            told = _of_key(item, versions, pins)
        elif item.kind == "wrong-value":
            told = item._replace(values={**item.values, "stated": _stated(item, versions, pins)})
        else:
            told = None if item.kind == "wrong-type" and _of_another_release(item, versions) else item
        if told is not None:
            kept.append(told)
    return kept


_LAST_KNOWN = re.compile(r"last known to (\S+) (\d[\w.]*)")
_NUMBER = "number"
_NULL = "null"


def _of_key(problem: Problem, versions: Mapping[str, str], pins: Mapping[str, Pin]) -> Problem | None:
    match = _LAST_KNOWN.match(problem.values["reason"])
    package = package_of(match[1]) if match else None
    if match is None or package is None:
        return problem._replace(values={**problem.values, "stated": _stated(problem, versions, pins)})
    stated = versions.get(package)
    if not is_release(stated):
        return None if _behind(problem.values["upstream"], versions) else problem
    pin = pins.get(package)
    may_be = (stated, *pin.others) if pin is not None and pin.release == stated else (stated,)
    key = problem.key.rpartition(".")[2]
    if not all(gone(package, key, match[2], release or "") for release in may_be):
        return None
    certain = pin is None or pin.release != stated or pin.exact
    named = {"upstream": f"{match[1]} {stated}", "stated": "yes" if certain else "no"}
    return problem._replace(values={**problem.values, **named})


def _stated(problem: Problem, versions: Mapping[str, str], pins: Mapping[str, Pin]) -> str:
    """`yes` where the release that runs is stated, and is the described one or a later one."""
    for part in problem.values["upstream"].split(", "):
        name, _, release = part.rpartition(" ")
        package = package_of(name) or ""
        stated, pin = versions.get(package), pins.get(package)
        if is_release(stated) and is_release(release) and earlier(stated or "", release) == release:
            return "yes" if pin is None or pin.release != stated or pin.exact else "no"
    return "no"


def _of_another_release(problem: Problem, versions: Mapping[str, str]) -> bool:
    """Whether a number, or none where one is wanted, is what the newest release refuses, and an earlier one runs."""
    found = problem.values["found"]
    number = (found == _NULL or as_number(found) is not None) and _NUMBER in problem.values["expected"]
    return number and _behind(problem.values["upstream"], versions)


def _behind(described: str, versions: Mapping[str, str]) -> bool:
    """Whether one of the described releases (`transformers 5.23.0, trl 1.16.0`) is not the one that runs."""
    for part in described.split(", "):
        name, _, release = part.rpartition(" ")
        stated = versions.get(package_of(name) or "")
        if stated and is_release(stated) and earlier(stated, release) != release:
            return True
    return False
