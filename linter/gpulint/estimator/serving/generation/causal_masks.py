"""The causal masks that classes of older releases kept on the GPU for all positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....upstream.stack import Stack
from ....upstream.transformers_models import CAUSAL_MASKS
from ...frameworks.frameworks import of_transformers

if TYPE_CHECKING:
    from ....job.job import Job
    from ....models.model import Model


SOURCE = "estimator/serving/generation/causal_masks.py"


def causal_masks(job: Job, model: Model) -> int:
    """Bytes of the masks of all layers: positions^2 each, one byte a pair (`CAUSAL_MASKS`)."""
    if not of_transformers(job) or not Stack(job).does(CAUSAL_MASKS, model.model_type):
        return 0
    return model.shape.layers * (model.shape.max_positions or 0) ** 2
