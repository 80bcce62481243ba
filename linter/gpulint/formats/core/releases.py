"""What older releases of TRL and Transformers do where a config is silent (`releases.json`)."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import TYPE_CHECKING, Any

from ...versions import numbers, older

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..hf_trainer.trainer_profiles import Flavour
    from .format import Problem


USUAL_OPTIMIZER = "adamw_torch_fused"
"""The Trainer's `optim` today. A script with one of its own keeps that in every release."""


def optimizer_at(usual: str, transformers: str | None) -> str:
    """The Trainer's `optim` in a stated release of transformers; `usual` in the current one."""
    rows = (row for row in _rows()["transformers"] if transformers and older(transformers, row["before"]))
    return next((str(row["defaults"]["optim"]) for row in rows if "optim" in row["defaults"]), usual)


def released(flavour: Flavour, stated: Mapping[str, str]) -> Flavour:
    """The flavour with the versions that a launcher or the settings state, and those releases' defaults.

    A release of TRL that never ran on Transformers 5 brings the last 4 along, where nothing states that.
    """
    versions = dict(flavour.versions)
    versions.update({name: version for name, version in stated.items() if numbers(version)})
    if versions == flavour.versions:
        return flavour
    rows = _rows()
    for row in rows["beside"]:
        known = versions.get(row["package"]) if row["package"] in stated else None
        if known and older(known, row["before"]) and row["package_of"] not in stated:
            versions[row["package_of"]] = row["version"]
    defaults = dict(flavour.defaults)
    packages = ("transformers", "trl") if flavour.trl else ("transformers",)
    for package in packages:
        if versions.get(package) == flavour.versions.get(package):
            continue
        for row in reversed(rows[package]):
            if older(versions[package], row["before"]):
                ours = {key: value for key, value in row["defaults"].items() if key in defaults}
                if ours.get("dtype") == "transformers":
                    ours["dtype"] = "float32" if older(versions["transformers"], "5") else "checkpoint"
                if package == "transformers" and flavour.trl:
                    ours.pop("dtype", None)
                if flavour.defaults.get("optim") != USUAL_OPTIMIZER:
                    ours.pop("optim", None)
                defaults.update(ours)
    return flavour._replace(versions=versions, defaults=defaults)


def default_of(package: str, version: str, name: str, newest: Any) -> Any:
    """A default of a release: that of the first row which holds for it and names it, else the newest's."""
    for row in _rows()[package]:
        if name in row["defaults"] and older(version, row["before"]):
            return row["defaults"][name]
    return newest


def moved_from(package: str, version: str) -> dict[str, Any]:
    """All defaults of a release that are no longer the newest's."""
    found: dict[str, Any] = {}
    for row in reversed(_rows()[package]):
        if older(version, row["before"]):
            found.update(row["defaults"])
    return found


def last_known(schema: dict[str, Any]) -> str:
    """The last release that knew a removed key; "" for one that is still there."""
    last = str(schema.get("x-removed", "")).partition(";")[0].rpartition(" ")[2]
    return last if numbers(last) else ""


def still_known(problem: Problem, schema: dict[str, Any], version: str | None) -> bool:
    """Whether a removed key, by its schema, is one that the stated release still has."""
    last = last_known(schema)
    return problem.kind == "deprecated-key" and bool(version and last) and not older(last, version or "")


@cache
def _rows() -> dict[str, Any]:
    with open(os.path.join(os.path.dirname(__file__), "releases.json"), encoding="utf-8") as file:
        rows: dict[str, Any] = json.load(file)
    return rows
