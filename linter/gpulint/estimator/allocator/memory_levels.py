"""Allocated -> reserved -> process of a training run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import budget, uncertainty
from ..estimate import PerGpu, Phase
from ..memoize import recalled
from ..sharding.fsdp import ShardedLayout
from . import fragmentation, runtime
from .replay import growing, plan_of
from .trace import Trace, evaluation_trace, trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...hardware.gpu import Gpu
    from ...job.job import Job
    from ...models.model import Model
    from ..sharding.layout import Layout
    from ..states.stage import Stage

RESIDENT = ("weights", "adapter", "kv_cache")


def held(
    stage: Stage,
    gpu: Gpu | None,
    plan: Layout,
    phases: Sequence[Phase],
    steps: Sequence[Phase],
    *,
    bounded: bool,
    replay: bool,
) -> fragmentation.Held:
    """What torch reserves over the run: two steps replayed, and never less than any phase allocates.

    A run that cannot fit is not replayed: it fails before it has grown so far.
    """
    job = stage.job
    static = min(sum(phase.components.get(name, 0) for name in RESIDENT) for phase in steps) + plan.optimizer
    allocated = max(phase.allocated for phase in phases)
    moving = max(phase.allocated for phase in phases if phase.name != "load") - static
    if (
        not bounded
        or not replay
        or (gpu is not None and allocated + runtime.process_overhead(gpu, job).low > gpu.usable)
    ):
        return fragmentation.packed(allocated, moving if bounded else 0)
    how = plan_of(job, stage.own, plan, steps)
    found = _run(job, stage.whole, _stays(plan), stage.last, bool(how.gradients) and _adds_up(job))
    return fragmentation.reserved(job, found, how, allocated, static, moving)


def lengthening(stage: Stage, plan: Layout, found: fragmentation.Held, allocated: int) -> fragmentation.Held:
    """The same where the longest batch comes after shorter ones, for a run that was replayed.

    The replay of many batches may be too low by as much as that of one (`margin`). That widens the interval on a card
    alone, which the batches may fill: nothing of what they leave is needed. A search that counts steps does not pay
    for it.
    """
    if found.found is None or found.plan is None or not uncertainty.varies(stage.job):
        return found
    before = budget.spent()
    lengths = uncertainty.records(stage.job)
    jobs = [stage.job.with_changes({"sequence_length": length}) for length in lengths]
    traces = [trace(job, stage.whole, inputs_stay=_stays(plan), head=stage.last) for job in jobs]
    grown = growing([*traces, found.found], found.plan, found.rules, allocated)
    budget.spend(before - budget.spent())
    return found._replace(growing=grown and grown + found.margin)


def _adds_up(job: Job) -> bool:
    """Whether the gradients of a step's first micro step are made anew and the later ones added to them.

    As `Setting.prepared` has it of the tape: where the longest batch comes first it is the first.
    """
    return job.gradient_accumulation_steps > 1 and not job.longest_first and not job.parallelism.one_process


def _stays(plan: Layout) -> bool:
    return isinstance(plan, ShardedLayout) and plan.kept > 0


@recalled(4)
def _run(job: Job, model: Model, stay: bool, head: bool, adds_up: bool) -> Trace:
    """The requests of a step, of its first micro step where gradients add up, and of an evaluation's pass."""
    found = trace(job, model, inputs_stay=stay, head=head)
    if adds_up:
        first = job.with_changes({"gradient_accumulation_steps": 1})
        found = found._replace(opening=trace(first, model, inputs_stay=stay, head=head))
    return found._replace(evaluation=evaluation_trace(job, model) if head else None)


def tiers(
    gpu: Gpu | None, found: fragmentation.Held, overhead: runtime.Overhead, peak: Phase, plan: Layout, bounded: bool
) -> tuple[PerGpu, int]:
    """Allocated -> reserved -> process, and the component `runtime`.

    `low` is the peak packed without any fragmentation and the least overhead; `high` adds what the replay may have
    missed, the largest overhead, `fragmentation.beyond`, and managed memory of a paged optimizer. Managed memory counts
    towards the expected process too as far as the GPU has room for it. On a card where the run goes through once torch
    has given free segments back, neither is above what the card has. Without a batch or a length only `low` means
    anything.
    """
    least, whole = found.low + overhead.low, overhead.total
    if not bounded:
        return PerGpu(peak.allocated, found.low, least, least, least), whole
    expected, usable = found.expected, gpu.usable if gpu is not None and least <= gpu.usable else None
    if usable is not None:
        expected = found.within(usable - whole) or found.within(usable - overhead.low) or expected
    beyond = fragmentation.beyond(expected + whole)
    high, process = found.high + overhead.high + beyond, expected + whole
    if usable is not None and high > usable:
        most = overhead.high + found.margin + beyond
        high = usable if found.within(usable - most) is not None else high
    if gpu is not None and expected + overhead.low <= gpu.usable:
        process = min(process, gpu.usable)
    if plan.paged:
        room = max(0, gpu.usable - process) if gpu is not None else plan.paged
        process += min(plan.paged, room)
        high = max(high, min(high + plan.paged, gpu.usable)) if gpu is not None else high + plan.paged
    return PerGpu(peak.allocated, expected, process, min(least, process), max(high, process)), whole
