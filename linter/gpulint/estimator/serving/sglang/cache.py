"""The cache of one token in SGLang's pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...states.parameters import base_dtype
from ...states.tensor_parallel import attention_tensor, fullest_stage
from ..generation.stored_cache import cache_dtype
from ..kv_cache import cache_bytes, layer_caches, lenders
from ..vllm.weights import cached_latent

if TYPE_CHECKING:
    from ....hardware.gpu import Gpu
    from ....job.job import Job
    from ....models.model import Model
    from .profile import Profile

_WINDOW_RATIO = 0.8
"""Tokens of the sliding layers' pool for each of the others' (server_args.py `swa_full_tokens_ratio`)."""


def token_bytes(job: Job, model: Model, gpu: Gpu | None, row: Profile) -> int:
    """Bytes of the pools for each token that the log counts, on the fullest rank.

    Sliding layers of the types that `row` names keep 0.8 of the tokens that the others keep. Sparse latent attention
    keeps packed fp8 on Blackwell unless told otherwise, with the indexer's key in fp8 on every card. Layers that read
    another's cache have room of their own in the pool, though nothing writes it.
    Source: sglang 0.5.23 srt/model_executor/pool_configurator.py; 0.5.10 srt/server_args.py (DeepSeek DSA);
    srt/models/gemma4_causal.py, gemma3n_causal.py (`RadixAttention` of `kv_shared_layer_index`).
    """
    given = job.inference
    assert given is not None
    dtype = cache_dtype(job, model)
    blackwell = gpu is not None and (gpu.compute_capability or 0) >= 10
    if model.shape.index_head_dim and row.sparse_fp8 and blackwell and dtype in (None, "auto"):
        dtype = "fp8_e4m3"
    width = cache_bytes(dtype, base_dtype(job, model))
    caches = list(layer_caches(model))
    for layer, lender in lenders(model).items():
        caches[layer] = caches[lender]
    divided = windowed(model, row) and any(cache.window is None for cache in caches)
    sizes = []
    for cache in caches:
        size = cache.token_elements(attention_tensor(job)) * width
        if cache.latent and model.shape.index_head_dim:
            index = max(0, cache.latent - model.shape.kv_lora_rank - model.shape.qk_rope_head_dim)
            size = cached_latent(model, cache.latent - index, index, width, None, dtype)
        sizes.append(round(size * _WINDOW_RATIO if divided and cache.window is not None else size))
    return fullest_stage(sizes, job.parallelism.pipeline)


def windowed(model: Model, row: Profile) -> bool:
    """Whether sliding layers get a pool of their own."""
    types = row.windows
    if types is None:
        return not model.model_type.startswith(tuple(row.unwindowed))
    return model.model_type.startswith(tuple(types)) if types else False
