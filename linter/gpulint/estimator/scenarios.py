"""Facts that a job names as unstated: it is estimated with each of their extremes, and the interval holds them all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ..job.weights import Quantization
from ..upstream.deepspeed import LAST_TO_TEST_EVERY_DTYPE, TESTS_EVERY_DTYPE
from ..upstream.torch import LAZY_LOADING, NCCL_2_22
from .estimate import Assumption, envelope
from .terms import at_least, at_most

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..job.job import Job
    from .estimate import Estimate, KvCache, Tiers

EXTREMES: dict[str, tuple[Any, ...]] = {
    "activation_checkpointing": ("none", "full"),
    # PEFT's default rank and targets, and those of the QLoRA paper (arXiv 2305.14314: rank 64, all linear layers)
    "adapter.r": (8, 64),
    "adapter.targets": (["q_proj", "v_proj"], "all-linear"),
    "attention": ("eager", "flash_attention_2"),
    # a script that turns `use_cache` off, or not
    "evaluation.caches": (False, True),
    # more than two micro steps are alike (sharding/fsdp.py)
    "gradient_accumulation_steps": (1, 3),
    # eight nodes of eight, and one GPU
    "hardware.gpus": (64, 1),
    # a short chat, and the model's own maximum
    "inference.max_model_len": (2048, None),
    # one request, and as many requests and tokens as vLLM takes by itself at the least and the most
    "inference.max_num_batched_tokens": (2048, 16384),
    "inference.max_num_seqs": (1, 1024),
    # one sample, and more than most cards take
    "micro_batch_size": (1, 32),
    # one GPU, and a node of eight
    "parallelism.context": (1, 8),
    "parallelism.data": (1, 8),
    "parallelism.expert": (1, 8),
    "parallelism.pipeline": (1, 8),
    "parallelism.tensor": (1, 8),
    "loss.compiled": (True, False),
    "loss.kernel": ("torch", "liger"),
    "optimizer.foreach": (False, True),
    # gradients reduced in every micro step, or kept whole until the last one
    "parallelism.fsdp.sync_each_batch": (True, False),
    # a process a GPU, or one for all
    "parallelism.one_process": (False, True),
    # weights divided as they are made, or when all are there
    "parallelism.zero.init": (True, False),
    "parallelism.zero.overlap_comm": (False, True),
    # data parallelism that shards nothing, or everything
    "parallelism.zero.stage": (0, 3),
    # stage 3 tests gradients of bfloat16, or does not (sharding/zero.py)
    "versions.deepspeed": (LAST_TO_TEST_EVERY_DTYPE, TESTS_EVERY_DTYPE.until),
    # the first to load kernels lazily, which has no foreach, and with NCCL 2.22 (allocator/runtime.json)
    "versions.torch": (LAZY_LOADING.since, NCCL_2_22.since),
    # 16 bits, and 4 in groups of 128
    "weights.quantization": (None, Quantization("gptq", 4.0)),
    "weights.quantization.double_quant": (False, True),
    # the kernels' smallest groups, and those of most checkpoints
    "weights.quantization.group_size": (32, 128),
}
"""What a fact that a job leaves open may be: the ends between which the interval has to hold."""


def may_be(job: Job, path: str) -> tuple[Any, ...]:
    """The values that a fact which nothing settles may take; none where nothing bounds them or the job lacks it."""
    origin = job.origins.get(path)
    values = (origin.values if origin is not None else ()) or EXTREMES.get(path, ())
    return values if values and _has(job, path) else ()


class Found(NamedTuple):
    """One extreme of one fact."""

    path: str
    value: Any
    estimate: Estimate


def enveloped(job: Job, found: Estimate, estimate: Callable[[Job], Estimate]) -> Estimate:
    """The estimate with an interval that holds those of the job's alternatives, and the verdict that they share.

    Each fact by itself, and together those values of each that need most. `tight` where the verdicts differ. The
    expected figures stay those of the values that the job holds.
    """
    known = replace(job, unstated=[])
    known.origins = job.origins
    tried = [
        Found(path, value, estimate(known.with_changes({path: value})))
        for path in job.unstated
        for value in may_be(job, path)
    ]
    if not tried:
        return found
    largest: dict[str, Found] = {}
    for item in tried:
        best = largest.get(item.path)
        if best is None or _need(item.estimate) > _need(best.estimate):
            largest[item.path] = item
    if len(largest) > 1:
        together = estimate(known.with_changes({item.path: item.value for item in largest.values()}))
        tried.append(Found(" with ".join(largest), "their most", together))
    others = [item.estimate for item in tried]
    told = (item for item in found.assumptions if item.field not in largest)
    return replace(
        found,
        tiers=_interval(found, tried),
        kv_cache=_held(found, others),
        verdict=envelope(found.verdict, *(other.verdict for other in others)),
        assumptions=(*told, *(_moved(job, found, path, tried) for path in largest)),
    )


def _interval(found: Estimate, tried: list[Found]) -> Tiers:
    """The tiers with `low` and `high` of the scenarios that need least and most."""
    least = min(tried, key=lambda item: item.estimate.per_gpu.low)
    most = max(tried, key=lambda item: item.estimate.per_gpu.high)
    tiers, words = found.tiers, "not stated: taken to be"
    low = at_most("low", tiers.low, least.estimate.per_gpu.low, f"{least.path}, {words} {least.value}")
    high = at_least("high", tiers.high, most.estimate.per_gpu.high, f"{most.path}, {words} {most.value}")
    return tiers._replace(low=low, high=high)


def _need(estimate: Estimate) -> tuple[int, int, int]:
    """What orders a fact's extremes: the fewer tokens an engine's cache is left, else the bytes expected, at the most.

    `high` comes last: `spread` moves it, and the extremes that are taken together are the same for every spread.
    """
    cache = estimate.kv_cache
    return (0 if cache is None or cache.low is None else -cache.low), estimate.needed, estimate.per_gpu.high


def _held(found: Estimate, others: list[Estimate]) -> KvCache | None:
    """The cache, between the fewest and the most tokens that any of the estimates gives it."""
    caches = [one.kv_cache for one in (found, *others) if one.kv_cache is not None]
    bounds = [size for one in caches for size in (one.low, one.tokens, one.high) if size is not None]
    if found.kv_cache is None or not bounds:
        return found.kv_cache
    return replace(found.kv_cache, low=min(bounds), high=max(bounds))


def _has(job: Job, path: str) -> bool:
    """Whether the job has the part that the path is about."""
    parent = path.rpartition(".")[0]
    if path == "parallelism.zero.stage":
        return job.parallelism.fsdp is None
    return parent == "versions" or not parent or job.get(parent) is not None


def _moved(job: Job, found: Estimate, path: str, tried: list[Found]) -> Assumption:
    """The bytes by which one fact alone moves the interval."""
    mine = [item.estimate.per_gpu for item in tried if item.path == path]
    less = max(0, found.per_gpu.low - min(tiers.low for tiers in mine))
    more = max(0, max(tiers.high for tiers in mine) - found.per_gpu.high)
    values = " or ".join("the model's own" if value is None else str(value) for value in may_be(job, path))
    origin = job.origins.get(path)
    why = f"{origin.note}; or" if origin is not None and origin.kind == "guessed" else "not stated:"
    return Assumption(path, str(_value(job, path)), f"{why} {values}", less, more)


def _value(job: Job, path: str) -> Any:
    value = job.get(path)
    return "unknown" if value is None else value
