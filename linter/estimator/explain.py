"""The whole derivation of an estimate, for `--explain`.

The terms of each component sum to what it holds at the peak, those of a tier (`reserved`, `process`, `low`, `high`) to
the figure of that name.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from .adapters.parameters import with_adapter
from .allocator import runtime
from .allocator.allocator import segments
from .estimate import Term
from .micro_step import on_stage
from .sharding.layouts import layout
from .states.stage import pipeline

if TYPE_CHECKING:
    from ..hardware.gpu import Gpu
    from ..job import Job
    from ..models.model import Model
    from .estimate import Assumption, Estimate
    from .instant import Instant
    from .sharding.layout import Layout
    from .states.stage import Stage

REST = {
    "gradients": "what is left of the gradients then, with their copies",
    "optimizer": "what is left of states and temporaries then",
    "buffers": "gathered parameters, whole gradients and communication buffers alive then",
    "kv_cache": "the part of the cache that the estimate counts",
}
"""What a component holds at its peak besides the lines that are told, or in their place."""

PHASES = {
    ("load", "buffers"): "what loading needs beside the weights",
    ("save", "buffers"): "parameters that are gathered to be written",
    ("evaluation", "logits"): "logits of earlier evaluation steps, and those that are joined to them",
}
"""The same in one phase."""


def explained(estimate: Estimate, job: Job, model: Model, gpu: Gpu | None) -> Estimate:
    """The estimate with terms for everything alive at its peak, on the rank that holds most.

    Lines of what is alive in another phase only are left out. Where the lines of a component still differ from what is
    alive at the peak, the rest is one line that says so. Lines of main memory (`host`) stay as they are.
    """
    job = with_adapter(job)
    found: dict[str, list[Term]] = defaultdict(list)
    for term in estimate.terms:
        if term.phase in ("", estimate.peak_phase):
            found[term.component].append(term)
    found["runtime"] = _runtime(job, gpu)
    if job.kind == "training":
        stage = next(stage for stage in pipeline(job, model) if estimate.fullest in (None, stage.name))
        plan = layout(stage.job, stage.own)
        if estimate.peak_phase == "optimizer_step":
            found["gradients"] = _stepped(found["gradients"], plan, estimate)
        elif estimate.peak_phase == "evaluation":
            _evaluated(found, estimate, stage, plan.evaluating())
        else:
            _at_peak(found, estimate, stage, plan)
    lines = [
        line for name, size in estimate.components.items() for line in _balanced(name, found[name], size, estimate)
    ]
    return replace(estimate, terms=(*lines, *tiers(estimate, job, gpu), *found["host"]))


def tiers(estimate: Estimate, job: Job, gpu: Gpu | None) -> list[Term]:
    """From what torch allocates at the peak to the interval of the process; each tier begins with the one before.

    reserved   allocated, and the free blocks of the segments that torch keeps
    process    reserved, and what lies outside torch
    low        allocated in whole segments, the least overhead, less what each assumption may take away
    high       reserved, the largest overhead, what each assumption may add, and what the replay may be short of; or
               the card's end
    """
    given, overhead = estimate.per_gpu, runtime.process_overhead(gpu, job)
    kept = given.reserved - given.allocated
    packed = segments(given.allocated) if job.kind == "training" else given.allocated
    least, most = (
        [(sign * size, f"{item.field} {item.value}: assumed") for item in estimate.assumptions if (size := take(item))]
        for sign, take in ((-1, _low), (1, _high))
    )
    lines = _tier("reserved", given.reserved, [(given.allocated, "allocated at the peak")], FREE if kept else "")
    sides = [(given.reserved, "reserved"), (estimate.runtime, "runtime")]
    beyond = given.process < sum(size for size, _ in sides)
    lines += _tier("process", given.process, sides, FULL if beyond else MANAGED)
    begin = [(packed, "allocated at the peak, in whole 2 MiB segments" if packed != given.allocated else "allocated")]
    lines += _tier("low", given.low, [*begin, (overhead.low, LEAST), *least], "what else a run may need less")
    begin = [(given.reserved, "reserved"), (overhead.high, MOST), *most]
    short = SHORT if job.kind == "training" else SERVED
    return [*lines, *_tier("high", given.high, begin, short if given.high >= sum(size for size, _ in begin) else FULL)]


FREE = "free blocks in segments that torch keeps: its requests replayed (estimator/allocator/replay.py)"
MANAGED = "managed memory of a paged optimizer that finds room"
LEAST = "the least that context, libraries and NCCL were measured at (estimator/allocator/runtime.json)"
MOST = "the most that context, libraries and NCCL were measured at (estimator/allocator/runtime.json)"
SHORT = "what the replay may be short of (estimator/allocator/slack.py)"
SERVED = "what the CUDA graphs and the step that is measured may need more"
FULL = "less: near the card's end torch gives free segments back, an engine shrinks its cache"


def _low(item: Assumption) -> int:
    return item.low


def _high(item: Assumption) -> int:
    return item.high


def _tier(name: str, size: int, lines: list[tuple[int, str]], rest: str) -> list[Term]:
    """Lines that sum to a tier, the last of them for what the others leave."""
    left = size - sum(part for part, _ in lines)
    given = [*lines, (left, rest)] if left else lines
    return [Term(name, f"{part:,} B", part, "", label) for part, label in given if part]


def _stepped(lines: list[Term], plan: Layout, estimate: Estimate) -> list[Term]:
    """The gradients of the optimizer step, with the copies that the plan makes of them."""
    size = estimate.peak.components["gradients"]
    if plan.in_backward and size == plan.largest_gradient:
        return [_in_hand(size)]
    return plan.step_terms if plan.step_terms and sum(line.size for line in plan.step_terms) == size else lines


def _evaluated(found: dict[str, list[Term]], estimate: Estimate, stage: Stage, plan: Layout) -> None:
    """Activations, logits and buffers of an evaluation's largest instant, and the logits that are there beside it."""
    from .activation_terms import terms
    from .evaluation import evaluating, gathered_logits, scored

    split = estimate.peak.components
    before, joined = gathered_logits(stage.job, stage.whole)
    found["gradients"] = found["gradients"] if plan.lasting else []
    if joined and not split["activations"]:
        what = "logits of the steps that are kept, as they are and joined to one tensor"
        found["logits"] = [Term("logits", f"2 x {joined // 2:,} B", joined, EVALUATION, what)]
        return

    def wanted(instant: Instant) -> bool:
        same = plan.activation_bytes(instant) == split["activations"]
        return same and instant.logits + before == split["logits"]

    lines = terms(evaluating(stage.job), stage.whole, wanted, scored)
    if lines is None:
        return
    made, instant = lines
    if before:
        made.append(Term("logits", f"{before:,} B", before, EVALUATION, "logits of earlier evaluation steps"))
    for name in ("activations", "logits"):
        found[name] = [line for line in made if line.component == name]
    found["buffers"] += plan.told(instant)


EVALUATION = "estimator/evaluation.py: gathered_logits"


def _at_peak(found: dict[str, list[Term]], estimate: Estimate, stage: Stage, plan: Layout) -> None:
    """Activations, logits, gradients and buffers of the instant that is the peak."""
    split, job = estimate.peak.components, stage.job
    if not split.get("activations") or not (job.micro_batch_size and job.sequence_length):
        return
    from .activation_terms import terms
    from .activations import replayed

    held = replayed(stage.job, stage.whole)[1]
    others = [line for line in found["buffers"] if line not in plan.terms]
    moving = split["buffers"] - sum(line.size for line in others)

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

    def exact(instant: Instant) -> bool:
        mine = here(instant)
        return wanted(instant) and mine is not None and plan.buffer_bytes(mine) == moving

    lines = terms(stage.job, stage.whole, exact) or terms(stage.job, stage.whole, wanted)
    if lines is None:
        return
    made, instant = lines
    mine = here(instant)
    assert mine is not None
    made += _beside(mine.activations - instant.activations, plan.activation_bytes(mine) - mine.activations)
    for name in ("activations", "logits"):
        found[name] = [line for line in made if line.component == name]
    found["gradients"] = _gradients(found["gradients"], plan, mine, split["gradients"])
    found["buffers"] += plan.told(mine)


def _beside(others: int, kept: int) -> list[Term]:
    """Activations that are not those of the micro batch in hand."""
    notes = (
        (others, "estimator/states/schedule.py", "what the pipeline's other micro batches in flight keep"),
        (kept, "estimator/sharding/fsdp.py", "what the layers whose backward pass is done leave until its end"),
    )
    return [Term("activations", f"{size:,} B", size, source, note) for size, source, note in notes if size]


def _in_hand(size: int) -> Term:
    return Term("gradients", f"{size:,} B", size, "torch autograd", "the largest gradient: each is used up at once")


def _gradients(lines: list[Term], plan: Layout, instant: Instant, size: int) -> list[Term]:
    """Those that exist at the instant."""
    lines = plan.gradient_lines(lines, instant)
    if not size or sum(line.size for line in lines) == size:
        return lines if size else []
    if plan.in_backward and size == plan.largest_gradient:
        return [_in_hand(size)]
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
        lines = [line for line in lines if line.source == runtime.WORKSPACE and line.size <= size]
        held = sum(line.size for line in lines)
    if held == size:
        return lines
    phase = estimate.peak_phase
    rest = PHASES.get((phase, name)) or f"{REST.get(name, 'more')} ({phase.replace('_', ' ')})"
    return [*lines, Term(name, f"{size - held:,} B", size - held, "", rest)]
