"""The derivation of reserved, process, and the interval of the process, for `--explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..allocator import runtime
from ..allocator.allocator import segments
from ..allocator.fragmentation import beyond
from ..estimate import Term

if TYPE_CHECKING:
    from ...hardware.gpu import Gpu
    from ...job.job import Job
    from ..estimate import Assumption, Estimate


class Words(NamedTuple):
    """What the last line of a tier is called: what a run reserves beside its peak, and may need less and more."""

    free: str
    less: str
    more: str


MANAGED = "managed memory of a paged optimizer that finds room"
LEAST = "the least that context, libraries and NCCL were measured at (estimator/allocator/runtime.json)"
MOST = "the most that context, libraries and NCCL were measured at (estimator/allocator/runtime.json)"
FULL = "less: near the card's end torch gives free segments back, an engine shrinks its cache"

BEYOND = "by which runs were found to differ from what is derived (estimator/allocator/slack.py)"
LESS = "what else a run may need less"
TRAINED = Words(
    "free blocks in segments that torch keeps: its requests replayed (estimator/allocator/replay.py)",
    LESS,
    "what the replay may be short of (estimator/allocator/slack.py)",
)
GENERATED = Words(
    "a free block of the widest MLP's size, which later requests may not fit (estimator/allocator/allocator.py)",
    LESS,
    "free twins of all that each request asks for anew, too scattered to serve it (estimator/allocator/allocator.py)",
)
SERVED = Words("", LESS, "what else a run may need more")


def tiers(estimate: Estimate, job: Job, gpu: Gpu | None) -> list[Term]:
    """From what torch allocates at the peak to the interval of the process; each tier begins with the one before.

    reserved   allocated, and the free blocks of the segments that torch keeps
    process    reserved, and what lies outside torch
    low        allocated in whole segments, the least overhead, less what each assumption may take away
    high       reserved, the largest overhead, what each assumption may add, and what the replay may be short of; or
               the card's end

    An engine's own lines of `low` and `high` come before what is left.
    """
    given, overhead = estimate.per_gpu, runtime.process_overhead(gpu, job)
    engine = any(phase.name == "serve" for phase in estimate.phases)
    words = TRAINED if job.kind == "training" else SERVED if engine else GENERATED
    packed = given.allocated if engine else segments(given.allocated)
    least, most = (
        [(sign * size, f"{item.field} {item.value}: assumed") for item in estimate.assumptions if (size := take(item))]
        for sign, take in ((-1, _low), (1, _high))
    )
    own = {
        side: [(term.size, term.label) for term in estimate.terms if term.component == side] for side in ("low", "high")
    }
    if job.kind == "training":
        left = packed + overhead.low + _sum(least)
        own = {"low": [(-beyond(left), BEYOND)], "high": [(beyond(given.reserved + overhead.total), BEYOND)]}
    lines = _tier("reserved", given.reserved, [(given.allocated, "allocated at the peak")], words.free)
    sides = [(given.reserved, "reserved"), (estimate.runtime, "runtime")]
    full = given.process < sum(size for size, _ in sides)
    lines += _tier("process", given.process, sides, FULL if full else MANAGED)
    begin = [(packed, "allocated at the peak, in whole 2 MiB segments" if packed != given.allocated else "allocated")]
    lines += _tier("low", given.low, [*begin, (overhead.low, LEAST), *least, *own["low"]], words.less)
    begin = [(given.reserved, "reserved"), (overhead.high, MOST), *own["high"], *most]
    return [*lines, *_tier("high", given.high, begin, words.more if given.high >= _sum(begin) else FULL)]


def _low(item: Assumption) -> int:
    return item.low


def _high(item: Assumption) -> int:
    return item.high


def _sum(lines: list[tuple[int, str]]) -> int:
    return sum(size for size, _ in lines)


def _tier(name: str, size: int, lines: list[tuple[int, str]], rest: str) -> list[Term]:
    """Lines that sum to a tier, the last of them for what the others leave."""
    left = size - _sum(lines)
    given = [*lines, (left, rest)] if left else lines
    return [Term(name, f"{part:,} B", part, "", label) for part, label in given if part]
