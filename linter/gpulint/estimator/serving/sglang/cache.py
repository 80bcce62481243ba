"""The cache of one token in SGLang's pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ....upstream.serving.sglang import CACHES_NO_EMBEDDING, STATED_STATES
from ...states.parameters import base_dtype
from ...states.storage import dtype_bytes
from ...states.tensor_parallel import attention_tensor, fullest_stage
from ..kv_cache import cache_bytes, cache_dtype, layer_caches, lenders, sequence_bytes
from ..vllm.states import with_states
from ..vllm.weights import SIXTEEN_BIT, cached_latent, fused_keys
from .settings import attention_groups

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ....hardware.gpu import Gpu
    from ....job.job import Job
    from ....models.model import Model
    from ...states.parameters import Parameter
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


SOURCE = (
    "sglang 0.5.12 srt/layers/quantization/fp8.py, mxfp4_marlin_moe.py; srt/models/deepseek_v4.py, gemma4_causal.py"
)

_SCALED = 32
"""Elements of an expert's row under one scale."""


class Added(NamedTuple):
    """Bytes above the checkpoint's: `sure` in any case, `scales` with Marlin's kernel alone."""

    sure: int
    scales: int


def added(model: Model, found: Iterable[Parameter], gpu: Gpu | None) -> Added:
    """What DeepSeek-V4 and Gemma 3n and 4 (`fused_keys`) take more on one rank; nothing for other models.

    DeepSeek-V4: fp8 projections of the compressor, and before Blackwell the first one of attention's output, are loaded
    in 16 bits. Experts of 4 bits are read with float32 scales in place of those of 1 byte; before Blackwell
    `moe_runner_backend` marlin keeps them beside its own, flashinfer_mxfp4 does not (by which Pro starts on eight H200,
    sglang PR 25923).
    """
    if model.model_type != "deepseek_v4":
        return Added(fused_keys(model, found), 0)
    older = gpu is not None and (gpu.compute_capability or 0) < 10
    names = (*SIXTEEN_BIT, ".o_a_proj.") if older else SIXTEEN_BIT
    sure = sum(
        item.elements * 2 - item.raw for item in found if item.packed and any(name in item.name for name in names)
    )
    small = older and model.config.get("expert_dtype") == "fp4"
    experts = sum(item.elements for item in found if item.role.startswith("expert_")) if small else 0
    return Added(sure, experts // _SCALED * 4)


RATIO = 0.9
"""States over cached tokens in a hybrid model's pool (server_args.py `mamba_full_memory_ratio`), short convolutions'
too (0.5.12 srt/model_executor/model_runner.py `mamba2_config` names Lfm2Config)."""

_CONVOLUTION, _RECURRENT = 2.0, 4.0
"""Bytes of an element: of convolutions in bfloat16, of states in float32 where the config says nothing
(srt/configs/mamba_utils.py `mamba2_state_dtype`)."""

_REQUESTS_BEFORE = 512
"""Requests whose states were kept without a radix cache where nobody said how many may run."""


def hybrid(model: Model) -> bool:
    """Whether layers keep a state of a request that does not grow with it."""
    return any((*model.shape.recurrent_states, *model.shape.conv_states))


def ratio(job: Job) -> float:
    """States over cached tokens where the pool is divided between them."""
    given = job.inference
    return RATIO if given is None or given.state_ratio is None else given.state_ratio


def set_aside(job: Job, model: Model, version: str | None) -> int | None:
    """Bytes for the states of a number of requests that is stated; None where they get a share of the pool.

    It is `max_mamba_cache_size`, or without a radix cache `max_running_requests`, on each group of data parallel
    attention. In 0.5.4 and 0.5.6 both count without a radix cache alone, and without a number it is 512. A server that
    drafts keeps states of drafted tokens too, which are not derived: its pool counts as divided.
    Source: sglang 0.5.9 srt/model_executor/model_runner_kv_cache_mixin.py `handle_max_mamba_cache`, the same in 0.5.15
    and 0.5.23; 0.5.4 srt/model_executor/model_runner.py.
    """
    given = job.inference
    if given is None or not hybrid(model) or given.speculative_algorithm:
        return None
    before, without_radix = not STATED_STATES.at(version), given.prefix_caching is False
    requests = given.max_states
    if before and not without_radix:
        return None
    if requests is None and without_radix:
        requests = given.max_num_seqs or (_REQUESTS_BEFORE if before else None)
    return None if requests is None else max(1, requests // attention_groups(job)) * request_bytes(job, model)


def request_bytes(job: Job, model: Model) -> int:
    """Bytes of one request's states on the fullest rank."""
    stated = model.shape.state_dtype
    width = dtype_bytes(stated) if stated else _RECURRENT
    caches, plan = with_states(layer_caches(model), model), job.parallelism
    return sequence_bytes(caches, 0, _CONVOLUTION, tensor=attention_tensor(job), pipeline=plan.pipeline, state=width)


def caches_no_token(job: Job, model: Model, gpu: Gpu | None, version: str | None) -> bool:
    """Whether attention reads keys and values as they are made, and the pool has no room but its page of padding.

    Asked for with `prefill_only_disable_kv_cache`; EmbeddingGemma on Hopper and Blackwell from 0.5.17 on.
    Source: sglang 0.5.17 srt/server_args.py `is_embedding_gemma` (not in 0.5.16), `NoOpMHATokenToKVPool`.
    """
    given = job.inference
    if given is not None and given.kv_cache_off:
        return True
    embeds = model.model_type.startswith("gemma3") and bool(model.config.get("use_bidirectional_attention"))
    return embeds and gpu is not None and (gpu.compute_capability or 0) >= 9 and CACHES_NO_EMBEDDING.at(version)
