"""A trainer's profile at the releases that a job states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream import transformers, trl
from ...upstream.behaviour import default_of, former_defaults, is_release

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .trainer_profiles import Flavour

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
