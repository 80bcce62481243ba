"""What logits and keys of a pass are counted by: the positions of a sequence that have them, and their width."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...models.arch_spec import arch_spec
from ...models.model import text_config
from ..frameworks.release import release
from ..states.parameters import base_dtype
from ..states.storage import dtype_bytes
from .speech import frames
from .virtual_tokens import lengthened

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.model import Model


def scored_positions(job: Job, model: Model) -> int:
    """The tokens of a sequence with virtual ones before them, or the frames that its samples of sound become."""
    config = {**model.defaults, **text_config(model.config)}
    if arch_spec(model.model_type, config, model.shape.norm).waves:
        return frames(config, job.sequence_length or 0)[-1]
    return lengthened(job).sequence_length or 0


def logits_width(job: Job, model: Model) -> float:
    """Bytes of an element of the logits that the model hands back: what it computes in, or 4 where it upcasts them."""
    upcast = job.loss.upcast or release(job, model.model_type).upcast
    return 4.0 if upcast == "model" else dtype_bytes(job.precision.autocast or base_dtype(job, model))
