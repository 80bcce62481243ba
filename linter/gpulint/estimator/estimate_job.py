"""The estimate of a job.

`estimate_job` takes a resolved model and GPU, `estimate` resolves them from the job first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..job.placement import unplaced
from .estimate import Estimate, NotEstimable

if TYPE_CHECKING:
    from ..hardware.gpu import Gpu
    from ..job.job import Job
    from ..models.model import Model
    from .estimate import Spread


def estimate_job(
    job: Job, model: Model, gpu: Gpu | None, *, replay: bool = True, spread: Spread = "always"
) -> Estimate:
    """The memory of `job` on its fullest GPU; `gpu` None leaves the verdict `unknown`.

    Facts in `job.unstated` widen the interval; without what `job.unread` names there is no verdict, and with more ranks
    than GPUs it is `exceeds`. `replay` False is for searches: `low`, and so the verdict `exceeds`, is what it would be,
    at a fraction of the work; what else is said of a training run is a bound, and without a GPU, where nothing is
    decided, no interval holds what is unstated. `spread` says when `high` is widened after the verdict.
    Raises NotEstimable with what is missing, for people.
    """
    from .loaded_model import as_run

    job = as_run(job, model)
    found = _estimated(job, model, gpu, replay=replay, spread=spread)
    if job.unstated and (replay or gpu is not None):
        from .scenarios import enveloped

        found = enveloped(job, found, lambda other: _estimated(other, model, gpu, replay=replay, spread=spread))
    if job.unread:
        return replace(found, verdict="unknown", as_stated="unknown")
    without_gpu = unplaced(job)
    return replace(found, unplaced=without_gpu) if without_gpu else found


def _estimated(job: Job, model: Model, gpu: Gpu | None, *, replay: bool, spread: Spread) -> Estimate:
    from .loaded_model import loaded_model

    model = loaded_model(job, model)
    if job.kind == "inference":
        return estimate_inference(job, model, gpu)
    from .training import estimate_training

    return estimate_training(job, model, gpu, replay=replay, spread=spread)


def estimate(job: Job, directory: str | None = None, root: str | None = None) -> Estimate:
    """Like `estimate_job`, with the job's model and GPU looked up.

    `directory` is where the config stands (for model paths), `root` the project's root. Raises NotEstimable,
    models.model.UnknownModel or hardware.catalogue.UnknownGpu.
    """
    from ..hardware.catalogue import find
    from ..models.resolve import resolve

    if job.model is None:
        raise NotEstimable("the job names no model")
    gpu = find(job.hardware.gpu) if job.hardware.gpu else None
    return estimate_job(job, resolve(job.model, directory, root), gpu)


ENGINES = ("transformers", "vllm", "sglang", "tgi", "tensorrt-llm", "lmdeploy")
_SPELLINGS = {"huggingface": "transformers", "hf": "transformers", "": "transformers"}
_SPLITS = {"parallelism.tensor": "tensor parallel size", "parallelism.pipeline": "pipeline parallel size"}


def estimate_inference(job: Job, model: Model, gpu: Gpu | None) -> Estimate:
    """The Estimate of one GPU of an inference job.

    Raises NotEstimable for an engine whose memory is not known, for a model whose tensors are not, and where nobody
    says over how many GPUs the model is split.
    """
    if job.inference is None:
        raise NotEstimable("the job says nothing about its inference")
    for path, degree in _SPLITS.items():
        if path in job.unstated:
            raise NotEstimable(f"its {degree} is filled in when the job starts; say the GPUs with --gpus")
    if not model.tensors:
        raise NotEstimable(f"the tensors of {model.id} are not known")
    engine = _SPELLINGS.get(job.inference.engine.lower(), job.inference.engine.lower())
    if engine == "transformers":
        from .serving.generation.generation import estimate_generation

        return estimate_generation(job, model, gpu)
    if engine == "vllm":
        from .serving.vllm.estimate import estimate_vllm

        return estimate_vllm(job, model, gpu)
    if engine == "sglang":
        from .serving.sglang.estimate import estimate_sglang

        return estimate_sglang(job, model, gpu)
    from .serving.pools.pool import engine_name, estimate_pool

    pooled = engine_name(engine)
    if pooled is not None:
        return estimate_pool(job, model, gpu, pooled)
    raise NotEstimable(f"the memory of {job.inference.engine} is not known; known engines: {', '.join(ENGINES)}")
