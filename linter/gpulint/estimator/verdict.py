"""Whether a job fits a GPU, from the interval of what its process needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .estimate import Capacity

if TYPE_CHECKING:
    from ..hardware.gpu import Gpu
    from .estimate import PerGpu, Verdict


def verdict(needed: PerGpu, gpu: Gpu | None, *, bounded: bool = True) -> Verdict:
    """`exceeds` when even the least the process needs is more than torch can have of the card, `fits` when the most
    it may need is not, `tight` between; `unknown` without a GPU. `high` is what it may need on this card: torch gives
    free segments back before it fails (slack.py), so what it would reserve on a larger one does not count.

    bounded   False where a part of the job is not known (batch, length): what is known may still exceed
    """
    if gpu is None:
        return "unknown"
    if needed.low > gpu.usable:
        return "exceeds"
    if not bounded:
        return "unknown"
    return "fits" if needed.high <= gpu.usable else "tight"


def envelope(*found: Verdict) -> Verdict:
    """The verdict of a job that may be any of several: the one that they share, else `tight`."""
    alike = set(found)
    if len(alike) == 1:
        return found[0]
    return "unknown" if "unknown" in alike else "tight"


def capacity(gpu: Gpu | None) -> Capacity | None:
    """The card's sizes for the report."""
    return None if gpu is None else Capacity(gpu.name, gpu.total, gpu.usable)
