"""The memory of an inference job, by the engine that runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .estimate import NotEstimable

if TYPE_CHECKING:
    from ..hardware.gpu import Gpu
    from ..job.job import Job
    from ..models.model import Model
    from .estimate import Estimate

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
    from .serving.pools.pools import engine_name, estimate_pool

    pooled = engine_name(engine)
    if pooled is not None:
        return estimate_pool(job, model, gpu, pooled)
    raise NotEstimable(f"the memory of {job.inference.engine} is not known; known engines: {', '.join(ENGINES)}")
