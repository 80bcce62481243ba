"""The traits of a model's class in the job's release of Transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...models.arch_spec import arch_spec
from ...models.model import text_config
from ...upstream.stack import Stack
from ...upstream.transformers_models import BOUNDED_SCORES, NATIVE_SCORES, WIDE_NATIVE_SCORES

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.arch_spec import ArchSpec
    from ...models.model import Model


def arch_at(job: Job, model: Model) -> ArchSpec:
    """The ArchSpec of the model's class: those of the newest release, but for how scores were made before."""
    found = arch_spec(model.model_type, {**model.defaults, **text_config(model.config)}, model.shape.norm)
    stack, half = Stack(job), "float16" in (job.precision.autocast, job.weights.dtype)
    native = stack.does(NATIVE_SCORES, model.model_type) or (
        not half and stack.does(WIDE_NATIVE_SCORES, model.model_type)
    )
    bounded = stack.does(BOUNDED_SCORES, model.model_type)
    return found._replace(scores="native" if native else found.scores, bounded=bounded)
