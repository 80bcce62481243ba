"""The hardware that is enough for a job as it is: more of the same GPU, or a larger one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ...estimator.estimate import Estimate
    from ...hardware.gpu import Gpu
    from ...job.job import Job
    from ..facts.facts import Facts

GPU_COUNTS = (2, 4, 8, 16, 32, 64, 128)

MAX_TRIED = 2
"""Cards below the one that surely holds a job that are tried as well."""

HOLDS = ("fits", "unknown")
"""Verdicts of hardware that is enough; `unknown` of a job whose batch or length is not stated: its states fit."""

AMPERE = 8.0

HEAVY = 40_000
"""Steps of the job's own estimate (`effort`) from which hardware is judged without a replay."""


class Enough(NamedTuple):
    """Hardware on which a job fits; `number` of them, `way` says what else has to change."""

    number: int
    gpu: Gpu
    estimate: Estimate
    way: str = ""

    @property
    def text(self) -> str:
        """`8 x H100 80GB with ZeRO-3`."""
        return f"{self.number} x {self.gpu.title}{self.way}"


def smallest_hardware(facts: Facts) -> list[Enough]:
    """The fewest of these GPUs, and the smallest other GPU of the catalogue, on which the job fits."""
    if facts.gpu is None or facts.model is None:
        return []
    return [item for item in (more_gpus(facts, facts.gpu), larger_gpu(facts, facts.gpu)) if item is not None]


def larger_gpu(facts: Facts, now: Gpu) -> Enough | None:
    """The smallest GPU of the same vendor with more memory that holds the job.

    Training asks for the same bytes on every GPU, so that an estimate without one says from where on it surely fits;
    the few cards below that may hold it too are tried.
    """
    from ...hardware.catalogue import gpus

    job, count = facts.job, facts.job.world_size
    larger = sorted(
        (gpu for gpu in gpus() if gpu.vendor == now.vendor and gpu.usable > now.usable and as_able(gpu, now)),
        key=lambda gpu: gpu.usable,
    )
    heavy = _is_heavy(facts)
    if job.kind == "training":
        anywhere = _estimate(facts, job, None, replay=not heavy)
        if anywhere is None:
            return None
        sure = [gpu for gpu in larger if gpu.usable >= anywhere.per_gpu.high]
        open_ = [gpu for gpu in larger if anywhere.per_gpu.allocated < gpu.usable < anywhere.per_gpu.high]
        larger = [*([] if heavy else open_[-MAX_TRIED:]), *sure[:1]]
        if heavy and sure:
            return Enough(count, sure[0], anywhere)
    else:
        weights = facts.estimate.components["weights"] if facts.estimate is not None else 0
        larger = [gpu for gpu in larger if gpu.usable > weights]
    for gpu in larger:
        found = _estimate(facts, _on(job, gpu, count), gpu, replay=True)
        if found is not None and found.outcome in HOLDS:
            return Enough(count, gpu, found)
    return None


def as_able(gpu: Gpu, now: Gpu) -> bool:
    """Whether what runs on `now` runs on it: Ampere brought bfloat16 and its kernels."""
    if gpu.compute_capability is None or now.compute_capability is None:
        return True
    return gpu.compute_capability >= min(now.compute_capability, AMPERE)


def _is_heavy(facts: Facts) -> bool:
    """Whether a replay takes so long that its bounds have to do; they say `fits` only where it surely does."""
    return facts.steps > HEAVY


def more_gpus(facts: Facts, gpu: Gpu) -> Enough | None:
    """The fewest of the same GPU that hold the job, sharded where it is not yet."""
    for count, changes, way in _ways(facts):
        job = _on(facts.job, gpu, count).with_changes(changes)
        if count <= facts.job.world_size or not _states_fit(facts, job, gpu):
            continue
        found = _fitting(facts, job, gpu)
        if found is not None:
            return Enough(count, gpu, found, way)
        if _is_heavy(facts):
            break
    return None


def fewer_gpus(facts: Facts, gpu: Gpu) -> Enough | None:
    """The fewest GPUs that still hold a training job, with accumulation so that the global batch stays."""
    job = facts.job
    now = job.world_size
    split = job.model_shards
    best = None
    for factor in (2, 4, 8, 16, 32, 64, 128):
        if now % (factor * split):
            break
        changes = {"gradient_accumulation_steps": job.gradient_accumulation_steps * factor}
        found = _fitting(facts, _on(job, gpu, now // factor).with_changes(changes), gpu)
        if found is None:
            break
        best = Enough(now // factor, gpu, found, f" with {factor} x the gradient accumulation")
    return best


def _ways(facts: Facts) -> Iterator[tuple[int, dict[str, Any], str]]:
    job = facts.job
    for count in GPU_COUNTS:
        if facts.reading.format == "hf_inference":
            yield count, {"parallelism.device_map": "auto"}, ' with device_map="auto"'
        elif job.kind == "inference":
            if facts.model is not None and facts.model.shape.heads % count == 0:
                yield count, {"parallelism.tensor": count}, f" with tensor parallel size {count}"
        elif facts.get("sharded.weights") or job.weights.quantization is not None:
            yield count, {}, ""
        else:
            yield count, {"parallelism.zero.stage": 3}, " with ZeRO-3"


def _on(job: Job, gpu: Gpu, count: int) -> Job:
    hardware = replace(job.hardware, gpu=gpu.name, gpus=count, granted_gpus=None, visible_gpus=None, started_ranks=None)
    return job.with_changes({"hardware": hardware, "parallelism.data": None})


def _states_fit(facts: Facts, job: Job, gpu: Gpu) -> bool:
    """Whether weights, gradients and states alone leave room, which is known before any activation is."""
    if job.kind != "training":
        return True
    states = job.with_changes({"micro_batch_size": None, "evaluation.micro_batch_size": None})
    return _estimate(facts, states, gpu, replay=False) is not None


def _fitting(facts: Facts, job: Job, gpu: Gpu) -> Estimate | None:
    """The estimate of a job that fits."""
    found = _estimate(facts, job, gpu, replay=not _is_heavy(facts))
    return found if found is not None and found.outcome in HOLDS else None


def _estimate(facts: Facts, job: Job, gpu: Gpu | None, *, replay: bool) -> Estimate | None:
    """The estimate of a job that does not exceed the GPU."""
    from ...estimator.estimate import NotEstimable
    from ...estimator.estimate_job import estimate_job
    from ...models.lora import NotAdaptable

    if facts.model is None:
        return None
    try:
        found = estimate_job(job, facts.model, gpu, replay=replay, spread="never")
    except (NotEstimable, NotAdaptable):
        return None
    return found if found.outcome != "exceeds" else None
