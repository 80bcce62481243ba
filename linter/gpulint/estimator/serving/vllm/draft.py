"""The draft model of speculative decoding: its weights and its layers' share of the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....models.layers import OTHER_PARTS
from ....models.model import UnknownModel, text_config
from ....upstream.serving.vllm import SHARES_DRAFT_HEAD
from ...states.parameter import Parameter, pieces_of
from ...states.parameters import base_dtype, parameters
from ...states.quantization import effective_quantization
from ...states.skipping import skips
from ...states.storage import dtype_bytes
from ..kv_cache import layer_caches

if TYPE_CHECKING:
    from ....job.job import Job
    from ....models.model import Model
    from ..layer_cache import LayerCache


_EIGHT = 8
"""Bits of a checkpoint that quantises its prediction layers too."""


def draft_model(job: Job, model: Model) -> Model | None:
    """The draft model; None without one, for one that is not known, and for the model's own prediction layers."""
    from ....models.resolve import resolve

    named = job.inference.speculative_model if job.inference else None
    if not named or named == model.id:
        return None
    try:
        return resolve(named)
    except UnknownModel:
        return None


_QWEN = ("qwen3_next", "qwen3_5")
"""Model types by their beginning whose prediction layer projects two states with a matrix that ranks divide
(models/qwen3_5_mtp.py `fc`); that of the others is whole on every rank (models/deepseek_mtp.py `eh_proj`)."""

_OWN_HEAD = ("deepseek_v3", "glm4_moe", "glm_moe_dsa")
"""Those by their beginning whose prediction layers have heads of their own (`SharedHead`), before vLLM replaces
them by the model's (`SHARES_DRAFT_HEAD`)."""

_PREDICTING = (*_QWEN, *_OWN_HEAD)


def predicts(job: Job, model: Model) -> bool:
    """Whether the model's own prediction layers (MTP) draft, and they are layers like its last."""
    given = job.inference
    if given is None or given.speculative_model not in (None, model.id):
        return False
    return is_prediction(given.speculative_algorithm or "") and model.model_type.startswith(_PREDICTING)


def is_prediction(algorithm: str) -> bool:
    """Whether a model's own prediction layers draft: `mtp` and names that end so (vllm config/speculative.py)."""
    return algorithm.lower().endswith("mtp")


def prediction_layers(model: Model) -> int:
    """`num_nextn_predict_layers` or `mtp_num_hidden_layers`, 1 where the config states neither."""
    config = {**model.config, **text_config(model.config)}
    stated = config.get("num_nextn_predict_layers") or config.get("mtp_num_hidden_layers")
    return stated if isinstance(stated, int) and stated > 0 else 1


def drafted_tokens(job: Job, model: Model) -> int:
    """Tokens that a draft proposes in a step; of prediction layers, where none are stated, one each.

    Source: vllm config/speculative.py `SpeculativeConfig.__post_init__` (`n_predict`).
    """
    given = job.inference
    if given is None or not (given.speculative_model or given.speculative_algorithm):
        return 0
    if given.speculative_tokens is None:
        return prediction_layers(model) if is_prediction(given.speculative_algorithm or "") else 0
    return max(0, given.speculative_tokens)


def _prediction(job: Job, model: Model) -> tuple[tuple[Parameter, ...], tuple[LayerCache, ...]]:
    """The prediction layers: each as the model's last that attends, a projection of two hidden states, and a cache.

    Embedding and head are the model's own. Their tensors are 8-bit where the checkpoint's are and its `ignore` list
    does not name `mtp`, and else 16-bit, as 4-bit checkpoints leave `mtp` out.
    Source: vllm 0.20 models/qwen3_5_mtp.py, models/deepseek_mtp.py; 0.24 the same.
    """
    given = job.serving
    count = prediction_layers(model)
    caches, tensor = layer_caches(model), job.parallelism.tensor
    version = given.version or job.versions.get("vllm")
    last = max(index for index, cache in enumerate(caches) if cache.grows)
    stored = effective_quantization(job, model)
    kept = stored is not None and stored.bits == _EIGHT and not skips("mtp.layers.0", stored)
    found = []
    for item in parameters(job, model):
        if item.part != "base" or item.role in OTHER_PARTS:
            continue
        if item.layers is not None and last in item.layers:
            item = item._replace(name=f"draft.{item.name}", copies=count, layers=(0,))
            plain = item._replace(pieces=pieces_of(item.shape, item.dtype), packed=False)
            found.append(item if kept or not item.packed else plain)
        elif item.role == "head" and model.model_type.startswith(_OWN_HEAD) and not SHARES_DRAFT_HEAD.at(version):
            found.append(item._replace(name=f"draft.{item.name}", copies=count))
    hidden, dtype = model.shape.hidden, base_dtype(job, model)
    shape = (hidden // tensor if model.model_type.startswith(_QWEN) else hidden, 2 * hidden)
    projection = Parameter("draft.fc.weight", shape, 1, None, "other", dtype, pieces_of(shape, dtype))
    return (*found, projection), (caches[last],) * count


def draft(job: Job, model: Model) -> tuple[tuple[Parameter, ...], tuple[LayerCache, ...]]:
    """Parameters and layer caches of the draft on one rank, divided like the model that it drafts for.

    Source: vllm/config/speculative.py `create_draft_parallel_config` (its tensor parallel size is the target's);
    its attention layers are registered beside the target's (v1/worker/gpu_model_runner.py `get_kv_cache_spec`).
    Of an unknown draft nothing is counted, but of an EAGLE head one layer like the target's, of prediction layers (MTP)
    what `_prediction` says.
    """
    if predicts(job, model):
        return _prediction(job, model)
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
