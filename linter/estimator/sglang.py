"""How SGLang fills a GPU: a static share for weights and KV cache, the rest for activations and CUDA graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..units import GIB, MIB, bytes_text
from . import runtime
from .derivation import weights as weight_terms
from .estimate import Assumption, Estimate, KvCache, PerGpu, Phase, Term
from .inference_assumptions import inference_assumptions
from .kv_cache import bytes_per_token, cache_bytes, layer_caches, sequence_bytes
from .parameters import allocated, base_dtype, parameters
from .storage import dtype_bytes
from .verdict import capacity, verdict
from .vllm_activations import layer_bytes, padded_vocabulary

if TYPE_CHECKING:
    from ..hardware.gpu import Gpu
    from ..job import Job
    from ..models.model import Model

_TIERS = (
    (20, 2048, 8, 8),
    (35, 4096, 48, 160),
    (60, 4096, 32, 160),
    (160, 8192, 256, 512),
    (1 << 20, 16384, 512, 512),
)
"""By GiB of the card: chunked_prefill_size, and the largest captured batch below and from 4 tensor-parallel ranks on.

Source: sglang 0.5.23 srt/arg_groups/memory_hook.py `handle_gpu_memory_settings`.
"""


class _Share(NamedTuple):
    """`fraction` of the memory found free before the weights; `chunk` tokens of one prefill step; what is defaulted."""

    fraction: float
    chunk: int
    defaulted: tuple[tuple[str, str], ...]


def estimate_sglang(job: Job, model: Model, gpu: Gpu | None) -> Estimate:
    """The Estimate of one SGLang rank.

    cache = memory free before loading x mem_fraction_static - weights; the rest is for the activations of one chunk
    and CUDA graphs. `refusal` is that nothing is left for the cache. Requests longer than the pool are no reason to
    refuse. The graphs of the prefill phase and multimodal reservations of recent versions are not modelled.
    Source: sglang 0.5.23 srt/mem_cache/kv_cache_configurator.py `_profile_available_bytes`.
    """
    given = job.inference
    assert given is not None
    share = _share(job, gpu)
    found = [item for item in parameters(job, model) if item.part in ("base", "buffer")]
    weights = allocated(found)
    element = max(2.0, dtype_bytes(base_dtype(job, model)))
    plan = job.parallelism
    caches = layer_caches(model)
    width = cache_bytes(given.kv_cache_dtype, base_dtype(job, model))
    token = bytes_per_token(caches, width, plan.tensor, plan.pipeline)
    overhead = runtime.process_overhead(gpu, job)
    activations = layer_bytes(model, share.chunk, element, plan.tensor)
    logits = round((element + 4) * (given.max_num_seqs or 1) * padded_vocabulary(model))
    length = given.max_model_len or model.shape.max_positions or share.chunk
    request = sequence_bytes(caches, length, width, tensor=plan.tensor, pipeline=plan.pipeline)
    refusal = None
    pool = request
    if gpu is not None:
        free = gpu.usable - overhead.context - overhead.nccl
        pool = round(free * share.fraction) - weights
        if pool <= 0:
            refusal = (
                f"weights of {bytes_text(weights)} leave nothing of the static {bytes_text(free * share.fraction)}"
                " for the KV cache"
            )
    fixed = {"weights": weights, "buffers": runtime.allocated_workspace(job, gpu)}
    held = request if refusal else max(0, pool)
    phases = (
        Phase("load", {"weights": weights}),
        Phase("serve", {**fixed, "kv_cache": held, "activations": activations, "logits": logits}),
    )
    serve = phases[-1]
    process = serve.allocated + overhead.total
    per_gpu = PerGpu(
        serve.allocated,
        serve.allocated,
        process,
        process - overhead.total + overhead.low,
        process - overhead.total + overhead.high,
    )
    outcome = verdict(per_gpu, gpu)
    if refusal is not None and gpu is not None:
        outcome = "exceeds" if gpu.total * share.fraction < weights else "tight"
    return Estimate(
        kind="inference",
        model_id=model.id,
        parameters=model.parameters,
        trainable_parameters=0,
        per_gpu=per_gpu,
        phases=phases,
        peak=serve,
        runtime=overhead.total,
        verdict=outcome,
        capacity=capacity(gpu),
        kv_cache=KvCache(
            token, max(0, pool) // token if token else 0, round(max(0, pool) / request, 2) if request else 0.0
        ),
        refusal=refusal,
        host=round(given.cpu_offload_gb * GIB),
        assumptions=_assumptions(job, model, share),
        terms=(
            *weight_terms(found),
            Term("kv_cache", f"{share.fraction:g} x free memory - weights", held, "sglang kv_cache_configurator.py"),
            Term("activations", f"one chunk of {share.chunk:,} tokens", activations, "estimator/vllm_activations.py"),
            Term("runtime", "CUDA context, kernels, NCCL", overhead.total, overhead.source),
        ),
    )


def _share(job: Job, gpu: Gpu | None) -> _Share:
    """`mem_fraction_static` and `chunked_prefill_size`, stated or by the card.

    reserve (MiB) = 512 + 1.5 x max(chunk, 2048) + tp pp / 8 x 1024 + 2 x the largest captured batch, at least 10 GiB
    on cards above 60 GiB; fraction = 1 - reserve / total.
    """
    given = job.inference
    assert given is not None
    total = gpu.total if gpu is not None else None
    tier = next((row for row in _TIERS if total is not None and total < row[0] * GIB), _TIERS[2])
    ranks = job.parallelism.tensor * job.parallelism.pipeline
    defaulted = []
    chunk = given.max_num_batched_tokens
    if chunk is None:
        chunk = tier[1]
        defaulted.append(("inference.max_num_batched_tokens", str(chunk)))
    fraction = given.gpu_memory_utilization
    if fraction is None:
        batch = 0 if given.enforce_eager else tier[2 if job.parallelism.tensor < 4 else 3]
        reserve = (512 + 1.5 * max(chunk, 2048) + ranks / 8 * 1024 + 2 * batch) * MIB
        if total is not None and total > 60 * GIB:
            reserve = max(reserve, 10 * GIB)
        fraction = round((total - reserve) / total, 3) if total is not None else 0.9
        defaulted.append(("inference.gpu_memory_utilization", str(fraction)))
    return _Share(fraction, chunk, tuple(defaulted))


def _assumptions(job: Job, model: Model, share: _Share) -> tuple[Assumption, ...]:
    version = (job.inference.version if job.inference else None) or "0.5.23"
    return inference_assumptions(job, model, share.defaulted, f"SGLang {version}")
