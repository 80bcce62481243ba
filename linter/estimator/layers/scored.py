"""How many positions of a sequence a training step's outputs have: what logits and keys are counted by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...models.model import text_config
from ..adapters.virtual_tokens import lengthened
from ..towers.waves import frames
from .traits import traits

if TYPE_CHECKING:
    from ...job import Job
    from ...models.model import Model


def scored_positions(job: Job, model: Model) -> int:
    """The tokens of a sequence with virtual ones before them, or the frames that its samples of sound become."""
    config = {**model.defaults, **text_config(model.config)}
    if traits(model.model_type, config, model.shape.norm).waves:
        return frames(config, job.sequence_length or 0)[-1]
    return lengthened(job).sequence_length or 0
