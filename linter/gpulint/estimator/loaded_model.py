"""The model as a job has it in memory: as its release of Transformers loads it, with the head of its task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .estimate import NotEstimable
from .frameworks.frameworks import without_unknown
from .states.adapter_parameters import with_adapter
from .states.guessed import as_stored, opened, weighs
from .unmodeled import with_required

if TYPE_CHECKING:
    from ..job.job import Job
    from ..models.model import Model


def loaded_model(job: Job, model: Model) -> Model:
    """Raises NotEstimable for an encoder of images alone, and for a task whose head is not known."""
    if not _reads_text(model):
        raise NotEstimable(f"a {model.model_type} model reads images: how encoders of images alone compute is not read")
    model = as_stored(job, _as_loaded(job, model))
    if job.kind == "inference":
        return model
    from ..models.heads import for_task
    from ..models.model import UnknownModel

    try:
        return for_task(model, job.objective, job.labels)
    except UnknownModel as error:
        raise NotEstimable(str(error)) from None


def _as_loaded(job: Job, model: Model) -> Model:
    """The model as the stated release of Transformers loads it, where Transformers does."""
    from ..models.stored import as_loaded
    from .frameworks.frameworks import of_transformers, runs_own_model

    serves = job.inference is not None and job.inference.engine != "transformers"
    if serves or not of_transformers(job) or runs_own_model(job, model.model_type):
        return model
    return as_loaded(model, job.versions.get("transformers"))


def _reads_text(model: Model) -> bool:
    """Whether a model has words and layers of known sizes for them, or at least does not read images."""
    roles = {tensor.role for tensor in model.tensors}
    images = any(tensor.role == "vision" or "patch_" in tensor.name for tensor in model.tensors)
    return not images or ("embedding" in roles and bool(model.shape.head_dim or "q" not in roles))


def as_run(job: Job, model: Model) -> Job:
    """With its method's default adapter, the packages it cannot lack and what a name leaves open.

    Without a framework that nobody knows.
    """
    job = with_required(with_adapter(without_unknown(job)), model)
    return opened(job, model) if weighs(job, model) else job
