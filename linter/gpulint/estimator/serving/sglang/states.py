"""What SGLang keeps of a request besides its tokens, or in their place: states of recurrent layers, or no cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....upstream.serving.sglang import CACHES_NO_EMBEDDING, STATED_STATES
from ...states.storage import dtype_bytes
from ...states.tensor_parallel import attention_tensor
from ..kv_cache import layer_caches, sequence_bytes
from ..vllm.states import with_states
from .static_share import attention_groups

if TYPE_CHECKING:
    from ....hardware.gpu import Gpu
    from ....job.job import Job
    from ....models.model import Model

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
