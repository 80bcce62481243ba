"""What differs between releases of transformers, read from the releases' own code."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..job import Job

NEWEST = (5, 23)
"""The release that the modelling code of this package follows; a job that states none is taken for it."""


class Release(NamedTuple):
    """Switches of one release.

    loss            `padded` (4.49 on: labels are padded), `shifted` (4.46 to 4.48: a shifted copy of the float32
                    logits), `early` (before: the model itself makes the logits float32, then the shifted copy)
    grouped_keys    sdpa is told to group keys (4.54 on); before, keys and values are repeated
    contiguous      sdpa's operands are laid out anew (4.48 to 4.55)
    grouped_experts experts run as grouped matmuls (5.0 on); before, one after the other as plain Linear layers
    """

    loss: str
    grouped_keys: bool
    contiguous: bool
    grouped_experts: bool


def release(job: Job) -> Release:
    """The switches of the job's `versions.transformers`."""
    version = parsed(job.versions.get("transformers")) or NEWEST
    loss = "padded" if version >= (4, 49) else "shifted" if version >= (4, 46) else "early"
    return Release(loss, version >= (4, 54), (4, 48) <= version < (4, 56), version >= (5, 0))


def parsed(text: str | None) -> tuple[int, int] | None:
    """Major and minor number of a version; None where it is no version."""
    parts = (text or "").split(".")
    if len(parts) < 2 or not (parts[0].isdigit() and parts[1].isdigit()):
        return None
    return int(parts[0]), int(parts[1])
