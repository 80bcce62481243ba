"""What differs between releases of transformers, read from the releases' own code."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .versions import older

if TYPE_CHECKING:
    from ..job import Job


class Release(NamedTuple):
    """Switches of one release; a job that states none has the newest, 5.23.

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
    version = job.versions.get("transformers")
    loss = "early" if older(version, "4.46") else "shifted" if older(version, "4.49") else "padded"
    contiguous = older(version, "4.56") and not older(version, "4.48")
    return Release(loss, not older(version, "4.54"), contiguous, not older(version, "5.0"))


def reentrant(job: Job) -> bool:
    """Whether checkpoints are reentrant: Trainers of transformers 4 make them so, of 5 not (modeling_utils.py 5.23)."""
    if job.reentrant is not None:
        return job.reentrant
    return job.framework is None and older(job.versions.get("transformers"), "5")
