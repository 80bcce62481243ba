"""The numbers of an Estimate that published counters can be held against."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpulint.estimator.allocator.runtime import process_overhead
from gpulint.estimator.estimate_job import estimate_job
from gpulint.estimator.serving.generation.generation import compute_bytes
from gpulint.estimator.serving.generation.prefill import held_product
from gpulint.estimator.serving.vllm.memory_budget import AVAILABLE, GRAPHS_BESIDE
from gpulint.estimator.serving.vllm.workspace import SOURCE as WORKSPACE
from gpulint.estimator.sharding.fsdp import fsdp_state
from gpulint.estimator.sharding.streams import IN_FLIGHT
from gpulint.estimator.states.parameters import parameters
from gpulint.estimator.training import by_stage
from gpulint.estimator.uncertainty import BATCH, varies
from gpulint.models.resolve import resolve
from gpulint.upstream.serving.vllm import LOGS_CONSUMED

from .case import gpu

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpulint.estimator.estimate import Estimate
    from gpulint.job.job import Job

    from .case import Case

COUNTERS = {
    "torch_peak_allocated": "allocated",
    "torch_peak_active": "allocated",
    "torch_peak_reserved": "reserved",
    "nvml_used": "process",
    "unstated": "process",
    "engine_kv_tokens": "kv_tokens",
}
"""Counter class of a row -> figure. What is `active` is allocated but for blocks that await a stream (`_active`)."""

CLOSE = 0.05
"""How far what torch allocated may be from the estimate where every fact is known: what 95 % of rows are held to."""


def run(job: Job) -> Estimate:
    """The estimate of a job. Raises UnknownModel, NotEstimable."""
    assert job.model is not None
    return estimate_job(job, resolve(job.model), gpu(job))


def value(case: Case, estimate: Estimate) -> float:
    """The figure that the case's counter measures."""
    return FIGURES[case.figure](case.job, estimate)


def interval(case: Case, estimate: Estimate) -> tuple[int, int] | None:
    """`low`..`high` where the figure is the one that they bound, or the tokens of an engine's cache.

    From the least of all counters on where none is named: what a step allocates at least, less what assumptions may
    take from it (axolotl's counters begin anew with each log line, core/trainers/base.py, utils/bench.py), and before
    the first evaluation: who does not tell what was counted does not tell when either. What it reserves is bounded by
    the same interval without what lies outside torch's allocator: as much as that may be, but where the card is the
    bound, as little. What torch allocates is one number but for facts that are not stated (`_moved`); the first step
    has no optimizer states yet until it is taken.
    """
    cache = estimate.kv_cache
    if case.figure in ("kv_tokens", "kv_bytes"):
        if cache is None or cache.low is None or cache.high is None or cache.low == cache.high:
            return None
        if case.figure == "kv_tokens":
            return cache.low, cache.high
        each = _kv_bytes(case.job, estimate) / cache.tokens if cache.tokens else cache.bytes_per_token
        return int(cache.low * each), int((cache.high + 1) * each)
    if case.figure in ("allocated", "active"):
        low, high = _moved(value(case, estimate), estimate)
        return (low - estimate.components["optimizer"] if case.each_step else low), high
    if case.figure not in ("process", "reserved"):
        return None
    low, high = estimate.per_gpu.low, estimate.per_gpu.high
    if case.figure == "reserved":
        outside = process_overhead(gpu(case.job), case.job)
        full = estimate.capacity is not None and high == estimate.capacity.usable
        return low - outside.low, high - (outside.low if full else outside.high)
    if not case.counted:
        least = _step(case.job, estimate) - sum(item.low for item in estimate.assumptions)
        low = max(0, min(low, least))
    return low, high


def _moved(at: float, estimate: Estimate) -> tuple[int, int]:
    """What is allocated at least and at most where facts that are not stated are otherwise, and CLOSE about that.

    The tier has no interval of its own: with all facts known it is one number.
    """
    less, more = sum(item.low for item in estimate.assumptions), sum(item.high for item in estimate.assumptions)
    return int((at - less) * (1 - CLOSE)), int((at + more) * (1 + CLOSE))


def _step(job: Job, estimate: Estimate) -> int:
    """What a step allocates; one of a batch as short as the data has it, where that decides."""
    but = {"load", "evaluation", "save", *(BATCH if varies(job) else ())}
    most: int = max(phase.allocated for phase in estimate.phases if phase.name not in but)
    whole: int = estimate.per_gpu.allocated
    return min(most, whole)


def _active(job: Job, estimate: Estimate) -> float:
    """What is allocated, and blocks that were freed and wait for a stream.

    FSDP 1 gathers in a stream of its own and frees with `record_stream`; its host runs IN_FLIGHT units ahead of the
    computation, whose last ones still wait when the loss is made (torch `_FreeEventQueue`). Version 2 waits with events
    and frees at once.
    """
    assert job.model is not None
    if job.parallelism.fsdp is None or job.parallelism.fsdp.version != 1:
        return float(estimate.per_gpu.allocated)
    model = resolve(job.model)
    units = fsdp_state(job, model, parameters(job, model)).units
    assert units is not None
    return float(estimate.per_gpu.allocated + IN_FLIGHT * units.block.gathered)


def _kv_tokens(_: Job, estimate: Estimate) -> float:
    return float(estimate.kv_cache.tokens) if estimate.kv_cache else 0.0


def _kv_bytes(_: Job, estimate: Estimate) -> float:
    """What is left for the cache, as the log says before a refusal; the estimate then holds what is needed."""
    left = sum(term.size for term in estimate.terms if term.component == AVAILABLE)
    return float(max(0, left) if estimate.refusal else estimate.components["kv_cache"])


def _weights(_: Job, estimate: Estimate) -> float:
    return float(estimate.components["weights"] + estimate.components["adapter"])


def _profile_run(job: Job, estimate: Estimate) -> float:
    """vLLM's profile run above weights: activations and the sampler's logits, or what is compiled for it.

    Since 0.27 its log counts what stays (the experts' workspace) as consumed, and the graphs that it takes off the
    cache as activations (v1/worker/gpu_worker.py `peak_activation_memory`, utils/mem_utils.py).
    """
    phases = {phase.name: phase.components for phase in estimate.phases}
    split = phases["profile_run"]
    compiled = phases["compile"]["activations"] if "compile" in phases else 0
    run = float(max(compiled, split["activations"] + split["logits"]))
    version = (job.inference.version if job.inference else None) or job.versions.get("vllm")
    if not LOGS_CONSUMED.at(version):
        return run
    stays = sum(term.size for term in estimate.terms if term.source == WORKSPACE)
    counted = any(term.label == GRAPHS_BESIDE for term in estimate.terms)
    graphs = 0 if counted else phases["serve"]["buffers"] - split["buffers"]
    return float(run - stays + graphs)


def _load(_: Job, estimate: Estimate) -> float:
    return float(next(phase for phase in estimate.phases if phase.name == "load").allocated)


def _resident(_: Job, estimate: Estimate) -> float:
    """Weights, adapter and buffers, before a step was taken."""
    split = estimate.components
    return float(split["weights"] + split["adapter"])


def _held(_: Job, estimate: Estimate) -> float:
    """What stays allocated between two steps: weights, adapter, cache and buffers."""
    split = estimate.components
    return float(sum(split[name] for name in ("weights", "adapter", "kv_cache", "buffers")))


def _beside_context(_: Job, estimate: Estimate) -> float:
    """What torch allocates at most, and what the process takes outside torch: nvidia-smi's without torch's slack."""
    return float(estimate.per_gpu.process - estimate.per_gpu.reserved + estimate.per_gpu.allocated)


def _sum_over_ranks(job: Job, estimate: Estimate) -> float:
    """Ranks of ZeRO, FSDP and DDP hold alike: the fullest one's process times the ranks."""
    return float(estimate.per_gpu.process * job.world_size)


def _sum_over_stages(job: Job, _: Estimate) -> float:
    """`device_map` over n GPUs: the peaks of the stages added up.

    A stage holds 1/n of weights and cache, and at its own peak the transient bytes of one layer; the last makes the
    logits, and what the model returns goes to the first (accelerate hooks.py `AlignDevicesHook.post_forward`, with
    `io_same_device` on the whole model), where `generate` holds those of a whole prompt through the second step.
    Derived from the one-GPU estimate of the same job.
    """
    assert job.model is not None
    count = job.hardware.gpus or 1
    whole = job.with_changes({"hardware.gpus": 1})
    others = run(whole.with_changes({"inference.full_prefill_logits": False}))
    middle, first = _stage(others, count), _stage(others, count, {"decode": _returned(whole)})
    last = run(whole)
    made = {phase.name: phase.components.get("logits", 0) for phase in last.phases if phase.name != "decode"}
    return first + (count - 2) * middle + _stage(last, count, made)


def _returned(job: Job) -> int:
    """Bytes of the prompt's logits that the model returned and `generate` holds in its second step."""
    assert job.model is not None
    given = job.inference
    assert given is not None
    model = resolve(job.model)
    held = held_product(model, job, given.batch_size or 1, given.prompt_length or 1, compute_bytes(job, model))
    return round(held.size)


def _last_stage(job: Job, _: Estimate) -> float:
    """What the ranks of the last pipeline stage allocate."""
    assert job.model is not None
    return float(by_stage(job, resolve(job.model), gpu(job), replay=False)[-1].per_gpu.allocated)


def _stage(estimate: Estimate, count: int, logits: dict[str, int] | None = None) -> float:
    """The peak of one of `count` stages, with `logits` bytes in the phases named."""
    most = 0.0
    for phase in estimate.phases:
        split = phase.components
        share = (split.get("weights", 0) + split.get("kv_cache", 0) + split.get("buffers", 0)) / count
        most = max(most, share + split.get("activations", 0) + (logits or {}).get(phase.name, 0))
    return most


FIGURES: dict[str, Callable[[Job, Estimate], float]] = {
    "allocated": lambda _, estimate: float(estimate.per_gpu.allocated),
    "active": _active,
    "reserved": lambda _, estimate: float(estimate.per_gpu.reserved),
    "process": lambda _, estimate: float(estimate.per_gpu.process),
    "process summed": _sum_over_ranks,
    "allocated summed": _sum_over_stages,
    "kv_tokens": _kv_tokens,
    "kv_bytes": _kv_bytes,
    "weights": _weights,
    "profile run": _profile_run,
    "resident": _resident,
    "held": _held,
    "allocated and context": _beside_context,
    "load": _load,
    "last stage": _last_stage,
}
