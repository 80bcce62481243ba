"""prime-rl's own models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream.prime_rl import OWN_MODELS
from ...upstream.stack import Stack

if TYPE_CHECKING:
    from ...job.job import Job


def own(job: Job, model_type: str) -> bool:
    """Whether prime-rl runs its own code of a model (`impl` auto) and not that of Transformers."""
    return Stack(job).does(OWN_MODELS, model_type)
