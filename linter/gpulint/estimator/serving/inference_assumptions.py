"""What an inference estimate rests on that no config says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..estimate import Assumption
from ..states.quantization import named_assumption
from .kv_cache import cache_dtype

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...job.job import Job
    from ...models.model import Model

_FIELDS = (
    "weights.dtype", "attention", "inference.version", "inference.batch_size", "inference.prompt_length",
    "inference.new_tokens", "inference.max_model_len", "inference.max_num_seqs", "inference.max_num_batched_tokens",
    "inference.gpu_memory_utilization", "inference.kv_cache_dtype", "inference.enforce_eager", "parallelism.tensor",
    "parallelism.pipeline", "hardware.gpus", "versions.transformers", "versions.torch", "versions.vllm",
)  # fmt: skip
"""Fields whose value moves bytes, most telling first."""


def inference_assumptions(
    job: Job, model: Model, defaulted: Iterable[tuple[str, str]] = (), tool: str = ""
) -> tuple[Assumption, ...]:
    """Fields that upstream defaults set, those the estimator filled in (`defaulted`), and an unknown architecture."""
    found = {
        path: Assumption(path, str(job.get(path)), origin.note or origin.kind)
        for path in _FIELDS
        if (origin := job.origins.get(path)) is not None
        and origin.kind in ("default", "assumed")
        and job.get(path) is not None
    }
    for path, value in defaulted:
        found[path] = Assumption(path, value, f"default of {tool}")
    if not model.exact:
        note = f"the architecture {model.model_type} is unknown; its tensors are taken to be llama's"
        found["model"] = Assumption("model", model.id, note)
    if job.inference is not None and (stored := cache_dtype(job, model)) != job.inference.kv_cache_dtype:
        path = "inference.kv_cache_dtype"
        found[path] = Assumption(path, str(stored), "as the checkpoint states")
    named = named_assumption(job, model)
    if named is not None:
        found[named.field] = named
    return tuple(found.values())
