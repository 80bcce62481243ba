"""The draft model of speculative decoding: its weights and its layers' share of the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..models.model import UnknownModel
from .kv_cache import layer_caches
from .parameters import parameters

if TYPE_CHECKING:
    from ..job import Job
    from ..models.model import Model
    from .kv_cache import LayerCache
    from .parameters import Parameter


def draft_model(job: Job, model: Model) -> Model | None:
    """The draft model; None without one, for one that is not known, and for the model's own prediction layers.

    Those (MTP) are not in a model's inventory.
    """
    from ..models.resolve import resolve

    named = job.inference.speculative_model if job.inference else None
    if not named or named == model.id:
        return None
    try:
        return resolve(named)
    except UnknownModel:
        return None


def draft(job: Job, model: Model) -> tuple[tuple[Parameter, ...], tuple[LayerCache, ...]]:
    """Parameters and layer caches of the draft on one rank, divided like the model that it drafts for.

    Source: vllm/config/speculative.py `create_draft_parallel_config` (its tensor parallel size is the target's);
    its attention layers are registered beside the target's (v1/worker/gpu_model_runner.py `get_kv_cache_spec`).
    """
    found = draft_model(job, model)
    if found is None:
        return (), ()
    own = job.with_changes({"weights.quantization": None})
    return tuple(item for item in parameters(own, found) if item.part in ("base", "buffer")), layer_caches(found)
