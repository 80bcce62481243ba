"""The whole derivation of an estimate at its peak, for `--explain`: the terms of each component sum to it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from . import runtime
from .estimate import Term
from .layout import layout
from .stage import pipeline
from .training import on_stage

if TYPE_CHECKING:
    from ..hardware.gpu import Gpu
    from ..job import Job
    from ..models.model import Model
    from .estimate import Estimate
    from .instant import Instant
    from .layout import Layout

WORKSPACE = "aten/src/ATen/cuda/CublasHandlePool.cpp"
REST = {
    "gradients": "what is left of the gradients then, with their copies",
    "optimizer": "what is left of states and temporaries then",
    "buffers": "gathered parameters, whole gradients and communication buffers alive then",
    "kv_cache": "the part of the cache that the estimate counts",
}
"""What a component holds at its peak besides the lines that are told, or in their place."""


def explained(estimate: Estimate, job: Job, model: Model, gpu: Gpu | None) -> Estimate:
    """The estimate with terms for everything alive at its peak, on the rank that holds most.

    Lines of what is alive in another phase only are left out. Where the lines of a component still differ from what is
    alive at the peak, the rest is one line that says so. Lines of main memory (`host`) stay as they are.
    """
    found: dict[str, list[Term]] = defaultdict(list)
    for term in estimate.terms:
        if term.phase in ("", estimate.peak_phase):
            found[term.component].append(term)
    found["runtime"] = _runtime(job, gpu)
    if job.kind == "training":
        _at_peak(found, estimate, job, model)
    lines = [
        line for name, size in estimate.components.items() for line in _balanced(name, found[name], size, estimate)
    ]
    return replace(estimate, terms=(*lines, *found["host"]))


def _at_peak(found: dict[str, list[Term]], estimate: Estimate, job: Job, model: Model) -> None:
    """Activations, logits and gradients of the instant that is the peak."""
    split = estimate.peak.components
    if not split.get("activations") or not (job.micro_batch_size and job.sequence_length):
        return
    from .activation_terms import terms
    from .activations import replayed

    stage = next(stage for stage in pipeline(job, model) if estimate.fullest in (None, stage.name))
    plan = layout(stage.job, stage.own)
    held = replayed(stage.job, stage.whole)[1]

    def here(instant: Instant) -> Instant | None:
        return instant if stage.of <= 1 else on_stage(instant, stage, held)

    def wanted(instant: Instant) -> bool:
        mine = here(instant)
        return (
            mine is not None
            and mine.phase == estimate.peak_phase
            and plan.activation_bytes(mine) == split["activations"]
            and mine.logits == split["logits"]
            and plan.gradient_bytes(mine.gradient_elements) == split["gradients"]
        )

    lines = terms(stage.job, stage.whole, wanted)
    if lines is None:
        return
    made, instant = lines
    mine = here(instant)
    assert mine is not None
    made += _beside(mine.activations - instant.activations, plan.activation_bytes(mine) - mine.activations)
    for name in ("activations", "logits"):
        found[name] = [line for line in made if line.component == name]
    found["gradients"] = _gradients(found["gradients"], plan, mine, split["gradients"])


def _beside(others: int, kept: int) -> list[Term]:
    """Activations that are not those of the micro batch in hand."""
    notes = (
        (others, "estimator/schedule.py", "what the pipeline's other micro batches in flight keep"),
        (kept, "estimator/fsdp.py", "what the layers whose backward pass is done leave until its end"),
    )
    return [Term("activations", f"{size:,} B", size, source, note) for size, source, note in notes if size]


def _gradients(lines: list[Term], plan: Layout, instant: Instant, size: int) -> list[Term]:
    """Those that exist at the instant."""
    if not size or sum(line.size for line in lines) == size:
        return lines if size else []
    done = min(instant.gradient_elements, plan.trainable)
    if plan.trainable and -(-plan.gradients * done // plan.trainable) == size:
        formula = f"{plan.gradients:,} B x {done:,} / {plan.trainable:,} trainable elements"
        return [Term("gradients", formula, size, "torch autograd", "the gradients that exist by then")]
    return lines


def _runtime(job: Job, gpu: Gpu | None) -> list[Term]:
    overhead = runtime.process_overhead(gpu, job)
    parts = (("CUDA context", overhead.context), ("libraries", overhead.libraries), ("NCCL", overhead.nccl))
    names = {"CUDA context": "context", "libraries": "libraries", "NCCL": "NCCL"}
    lines = []
    for label, size in parts:
        source = "; ".join(s.partition(": ")[2] for s in overhead.sources if s.startswith(names[label]))
        if size:
            lines.append(Term("runtime", f"{size:,} B", size, source, f"{label}, measured"))
    return lines


def _balanced(name: str, lines: list[Term], size: int, estimate: Estimate) -> list[Term]:
    """The lines, where they sum to `size`; else those that are surely there, and the rest in one line."""
    if not size:
        return []
    held = sum(line.size for line in lines)
    if held == size:
        return [line for line in lines if line.size or line.source]
    if held > size:
        lines = [line for line in lines if line.source == WORKSPACE and line.size <= size]
        held = sum(line.size for line in lines)
    phase = estimate.peak_phase.replace("_", " ")
    return [*lines, Term(name, f"{size - held:,} B", size - held, "", f"{REST.get(name, 'more')} ({phase})")]
