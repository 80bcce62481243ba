"""The whole derivation of an estimate at its peak, for `--explain`: the terms of each component sum to it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from . import host, runtime
from .estimate import Term
from .layout import layout

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
    """The estimate with a term for everything alive at its peak, and for main memory under `host`.

    Lines of what is alive in another phase only are left out. Where the lines of a component still differ from what is
    alive at the peak, the rest is one line that says so.
    """
    found: dict[str, list[Term]] = defaultdict(list)
    for term in estimate.terms:
        if term.phase in ("", estimate.peak_phase):
            found[term.component].append(term)
    found["runtime"] = _runtime(job, gpu)
    if job.kind == "training":
        _at_peak(found, estimate, job, model)
    sizes = {**estimate.components, "host": estimate.host}
    lines = [line for name, size in sizes.items() for line in _balanced(name, found[name], size, estimate)]
    return replace(estimate, terms=tuple(lines))


def _at_peak(found: dict[str, list[Term]], estimate: Estimate, job: Job, model: Model) -> None:
    """Activations, logits and gradients of the instant that is the peak."""
    plan = layout(job, model)
    split = estimate.peak.components
    found["host"] = _host(plan, job, model)
    if not split.get("activations") or not (job.micro_batch_size and job.sequence_length):
        return

    def wanted(instant: Instant) -> bool:
        return (
            instant.phase == estimate.peak_phase
            and plan.activation_bytes(instant) == split["activations"]
            and instant.logits == split["logits"]
            and plan.gradient_bytes(instant.gradient_elements) == split["gradients"]
        )

    from .activation_terms import terms

    lines = terms(job, model, wanted)
    if lines is None:
        return
    made, instant = lines
    kept = plan.activation_bytes(instant) - instant.activations
    if kept:
        note = "what the layers whose backward pass is done leave until its end"
        made.append(Term("activations", f"{kept:,} B", kept, "estimator/fsdp.py", note))
    for name in ("activations", "logits"):
        found[name] = [line for line in made if line.component == name]
    found["gradients"] = _gradients(found["gradients"], plan, instant, split["gradients"])


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


def _host(plan: Layout, job: Job, model: Model) -> list[Term]:
    kept = host.checkpoints(job, model)
    lines = []
    if plan.host:
        lines.append(Term("host", f"{plan.host:,} B", plan.host, "", "offloaded parameters, gradients and states"))
    if kept:
        lines.append(Term("host", f"{kept:,} B", kept, "", "offloaded inputs of checkpointed layers"))
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
