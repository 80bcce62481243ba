"""What a job would need with other batches, lengths, GPUs and methods: an estimate for every combination."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ..estimator.estimate import Estimate
    from ..hardware.gpu import Gpu
    from ..job.job import Job
    from ..models.model import Model

GRID_STEPS = 5_000_000
"""Work of one job after which combinations are left out, in the steps of `estimator/budget.py`: some ten seconds; those
near what the job has now go first."""


class Axis(NamedTuple):
    """One thing to vary: what to call it, its choices as shown, the Job changes of each, and which one holds now."""

    name: str
    labels: tuple[str, ...]
    changes: tuple[dict[str, Any], ...]
    now: int


class Grid(NamedTuple):
    """The axes, and the estimate of each combination of choices; None where there is none."""

    axes: tuple[Axis, ...]
    points: dict[tuple[int, ...], Estimate | None]


def grid(job: Job, model: Model, gpu: Gpu | None) -> Grid:
    """Every combination of the axes of a job, estimated; what the job has now is among them."""
    from ..estimator import budget

    axes = tuple(axis for axis in _axes(job, model) if len(axis.labels) > 1)
    now = tuple(axis.now for axis in axes)
    order = sorted(
        product(*(range(len(axis.labels)) for axis in axes)),
        key=lambda place: sum(abs(one - two) for one, two in zip(place, now, strict=True)),
    )
    points: dict[tuple[int, ...], Estimate | None] = {}
    end = budget.spent() + GRID_STEPS
    for place in order:
        if budget.spent() > end:
            break
        changes: dict[str, Any] = {}
        for axis, choice in zip(axes, place, strict=True):
            changes |= axis.changes[choice]
        points[place] = _estimate(job, changes, model, gpu)
    return Grid(axes, points)


def _estimate(job: Job, changes: dict[str, Any], model: Model, gpu: Gpu | None) -> Estimate | None:
    from ..estimator.estimate import NotEstimable
    from ..estimator.estimate_job import estimate_job
    from ..models.lora import NotAdaptable

    try:
        return estimate_job(job.with_changes(changes) if changes else job, model, gpu)
    except (NotEstimable, NotAdaptable, ValueError):
        return None


def _axes(job: Job, model: Model) -> list[Axis]:
    if job.kind == "training":
        return [
            _sizes("micro batch size", "micro_batch_size", job.micro_batch_size, (0.25, 0.5, 1, 2, 4)),
            _sizes("sequence length", "sequence_length", job.sequence_length, (0.5, 1, 2, 4)),
            _gpus(job),
            _methods(job),
        ]
    inference = job.inference
    if inference is None:
        return []
    if inference.engine == "transformers":
        return [
            _sizes("batch size", "inference.batch_size", inference.batch_size, (0.25, 0.5, 1, 2, 4, 8)),
            _sizes("prompt length", "inference.prompt_length", inference.prompt_length, (0.25, 0.5, 1, 2, 4)),
        ]
    length = inference.max_model_len or model.shape.max_positions
    degrees = [count for count in (1, 2, 4, 8, 16) if model.shape.heads % count == 0]
    tensor = job.parallelism.tensor
    degrees = sorted({*degrees, tensor})
    return [
        _sizes("max model length", "inference.max_model_len", length, (0.125, 0.25, 0.5, 1)),
        Axis(
            "tensor parallel",
            tuple(map(str, degrees)),
            tuple({} if count == tensor else {"parallelism.tensor": count} for count in degrees),
            degrees.index(tensor),
        ),
    ]


def _sizes(name: str, path: str, now: int | None, factors: tuple[float, ...]) -> Axis:
    """Multiples of what a job has now; a single choice where it does not say."""
    if not now:
        return Axis(name, ("",), ({},), 0)
    values = sorted(
        {int(now * factor) for factor in factors if now * factor >= 1 and now * factor == int(now * factor)}
    )
    changes = tuple({} if value == now else {path: value} for value in values)
    return Axis(name, tuple(map(str, values)), changes, values.index(now))


def _gpus(job: Job) -> Axis:
    now, plan = job.world_size, job.parallelism
    step = plan.tensor * plan.pipeline * plan.context
    if plan.zero is None and plan.fsdp is None:  # every GPU holds all: more of them change nothing
        return Axis("GPUs", (str(now),), ({},), 0)
    counts = [count for count in (now // 4, now // 2, now, now * 2, now * 4) if count]
    counts = sorted({now, *(count for count in counts if count % step == 0)})
    changes = tuple({} if count == now else {"hardware.gpus": count, "parallelism.data": None} for count in counts)
    return Axis("GPUs", tuple(map(str, counts)), changes, counts.index(now))


def _methods(job: Job) -> Axis:
    """Full, LoRA and QLoRA, as far as they are changes of this job's method."""
    lora: dict[str, Any] = {"method": "lora", "adapter.targets": "all-linear", "adapter.r": 16}
    packed = {"weights.quantization.method": "bnb-nf4"}
    quantized = job.weights.quantization is not None
    if job.objective == "pretrain" or (quantized and job.method != "lora"):
        return Axis("method", (job.method,), ({},), 0)
    if job.method == "full":
        return Axis("method", ("full", "LoRA r 16", "QLoRA r 16"), ({}, lora, {**lora, **packed}), 0)
    if job.method == "lora" and job.adapter is not None:
        name = f"r {job.adapter.r}"
        if quantized:
            plain = {"weights.quantization": None}
            return Axis("method", (f"QLoRA {name}", f"LoRA {name}"), ({}, plain), 0)
        return Axis("method", (f"LoRA {name}", f"QLoRA {name}"), ({}, packed), 0)
    return Axis("method", (job.method,), ({},), 0)
