"""The draft model of speculative decoding: its weights and its layers' share of the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..models.layers import OTHER_PARTS
from ..models.model import UnknownModel
from .kv_cache import layer_caches
from .parameter import Parameter
from .parameters import base_dtype, parameters
from .storage import dtype_bytes

if TYPE_CHECKING:
    from ..job import Job
    from ..models.model import Model
    from .kv_cache import LayerCache


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
    Of an unknown draft nothing is counted, but of an EAGLE head one layer like the target's.
    """
    found = draft_model(job, model)
    if found is None:
        return _head(job, model)
    own = job.with_changes({"weights.quantization": None})
    return tuple(item for item in parameters(own, found) if item.part in ("base", "buffer")), layer_caches(found)


def is_head(job: Job, model: Model) -> bool:
    """Whether the draft is an EAGLE head by its name, of a model with dense layers."""
    named = (job.inference.speculative_model if job.inference else None) or ""
    return "eagle" in named.lower() and named != model.id and not model.shape.experts


def _head(job: Job, model: Model) -> tuple[tuple[Parameter, ...], tuple[LayerCache, ...]]:
    """A layer of the shape and cache of the target's first, and a projection of two hidden states (EAGLE 3: three).

    Embedding and head are the target's (vllm 0.9.2 v1/spec_decode/eagle.py `load_model`; models/llama_eagle.py `fc`).
    """
    if not is_head(job, model):
        return (), ()
    named = (job.inference.speculative_model if job.inference else None) or ""
    own = job.with_changes({"weights.quantization": None})
    layer = tuple(
        item._replace(name=f"draft.{item.name}", copies=1, layers=(0,))
        for item in parameters(own, model)
        if item.part == "base" and item.layers is not None and 0 in item.layers and item.role not in OTHER_PARTS
    )
    hidden, states, dtype = model.shape.hidden, 3 if "eagle3" in named.lower() else 2, base_dtype(own, model)
    size = round(states * hidden**2 * dtype_bytes(dtype))
    projection = Parameter("draft.fc.weight", (hidden, states * hidden), 1, None, "other", dtype, (size,))
    return (*layer, projection), layer_caches(model)[:1]
