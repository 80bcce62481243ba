"""Allocated -> reserved -> process of a training run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import budget, uncertainty
from ..estimate import FULL, LEAST, MOST, Tiers
from ..memoize import recalled
from ..sharding.fsdp_state import FsdpState
from ..terms import at_most, tier, total
from . import fragmentation, runtime
from .replay import growing, plan_of
from .trace import Trace, evaluation_trace, trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...hardware.gpu import Gpu
    from ...job.job import Job
    from ...models.model import Model
    from ..estimate import Phase
    from ..sharding.sharded_state import ShardedState
    from ..states.stage import Stage

RESIDENT = ("weights", "adapter", "kv_cache")


def held(
    stage: Stage,
    gpu: Gpu | None,
    state: ShardedState,
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
    static = min(sum(phase.components[name] for name in RESIDENT) for phase in steps) + state.optimizer
    allocated = max(phase.allocated for phase in phases)
    moving = max(phase.allocated for phase in phases if phase.name != "load") - static
    if (
        not bounded
        or not replay
        or (gpu is not None and allocated + runtime.process_overhead(gpu, job).low > gpu.usable)
    ):
        return fragmentation.packed(allocated, moving if bounded else 0)
    how = plan_of(job, stage.own, state, steps)
    found = _run(job, stage.whole, _stays(state), stage.last, bool(how.gradients) and _adds_up(job))
    return fragmentation.reserved(job, found, how, allocated, static, moving)


def lengthening(stage: Stage, state: ShardedState, found: fragmentation.Held, allocated: int) -> fragmentation.Held:
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
    traces = [trace(job, stage.whole, inputs_stay=_stays(state), head=stage.last) for job in jobs]
    grown = growing([*traces, found.found], found.plan, found.rules, allocated)
    budget.spend(before - budget.spent())
    return found._replace(growing=grown and grown + found.margin)


def _adds_up(job: Job) -> bool:
    """Whether the gradients of a step's first micro step are made anew and the later ones added to them.

    As `Setting.prepared` has it of the tape: where the longest batch comes first it is the first.
    """
    return job.gradient_accumulation_steps > 1 and not job.longest_batch_first and not job.parallelism.one_process


def _stays(state: ShardedState) -> bool:
    return isinstance(state, FsdpState) and state.kept > 0


@recalled(4)
def _run(job: Job, model: Model, stay: bool, head: bool, adds_up: bool) -> Trace:
    """The requests of a step, of its first micro step where gradients add up, and of an evaluation's pass."""
    found = trace(job, model, inputs_stay=stay, head=head)
    if adds_up:
        first = job.with_changes({"gradient_accumulation_steps": 1})
        found = found._replace(opening=trace(first, model, inputs_stay=stay, head=head))
    return found._replace(evaluation=evaluation_trace(job, model) if head else None)


FREE = "free blocks in segments that torch keeps: its requests replayed (estimator/allocator/replay.py)"
SHORT = "what the replay may be short of (estimator/allocator/fragmentation.py)"
MANAGED = "managed memory of a paged optimizer that finds room"


def tiers(
    gpu: Gpu | None,
    found: fragmentation.Held,
    overhead: runtime.Overhead,
    peak: Phase,
    state: ShardedState,
    bounded: bool,
) -> Tiers:
    """Allocated -> reserved -> process.

    `low` is the peak packed without any fragmentation and the least overhead; `high` adds what the replay may have
    missed, the largest overhead, `fragmentation.beyond`, and managed memory of a paged optimizer. Managed memory counts
    towards the expected process too as far as the GPU has room for it. On a card where the run goes through once torch
    has given free segments back, neither is above what the card has. Without a batch or a length only `low` means
    anything.
    """
    allocated, whole = peak.allocated, overhead.total
    packed = "allocated" if found.low == allocated else "allocated at the peak, in whole 2 MiB segments"
    low = tier("low", (found.low, packed), (overhead.low, LEAST))
    begin = (allocated, "allocated at the peak")
    if not bounded:
        reserved = tier("reserved", begin, (found.low - allocated, FREE))
        least = (found.low, "reserved"), (overhead.low, LEAST)
        return Tiers(reserved, tier("process", *least), low, tier("high", *least))
    expected, usable = found.expected, gpu.usable if gpu is not None and total(low) <= gpu.usable else None
    if usable is not None:
        expected = found.within(usable - whole) or found.within(usable - overhead.low) or expected
    reserved = tier("reserved", begin, (expected - allocated, FREE))
    process = tier("process", (expected, "reserved"), (whole, "runtime"))
    beyond = fragmentation.beyond(expected + whole)
    high = tier(
        "high",
        (expected, "reserved"),
        (overhead.high, MOST),
        (beyond, uncertainty.MARGIN),
        (found.high - expected, SHORT),
    )
    if usable is not None and total(high) > usable:
        most = overhead.high + found.margin + beyond
        high = at_most("high", high, usable, FULL) if found.within(usable - most) is not None else high
    if gpu is not None and expected + overhead.low <= gpu.usable:
        process = at_most("process", process, gpu.usable, FULL)
    if state.paged:
        taken, most = total(process), total(high)
        room = max(0, gpu.usable - taken) if gpu is not None else state.paged
        more = state.paged if gpu is None else max(0, min(state.paged, gpu.usable - most))
        process += tier("process", (min(state.paged, room), MANAGED))
        high += tier("high", (more, MANAGED))
    return Tiers(reserved, process, low, high).holding()
