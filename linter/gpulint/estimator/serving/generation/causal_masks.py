"""The causal masks that classes of older releases kept on the GPU for all positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...frameworks.frameworks import of_transformers
from ...frameworks.modeling import still

if TYPE_CHECKING:
    from ....job.job import Job
    from ....models.model import Model


SOURCE = "estimator/serving/causal_masks.py"


def causal_masks(job: Job, model: Model) -> int:
    """Bytes of the masks of all layers: positions^2 each, one byte a pair (`causal_masks` of modeling.json)."""
    if not of_transformers(job) or not still("causal_masks", job, model):
        return 0
    return model.shape.layers * (model.shape.max_positions or 0) ** 2
