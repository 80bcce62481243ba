"""From what torch allocates to what the process takes, and the interval that holds it: each the sum of its terms."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .estimate import PerGpu
from .terms import Term, line, total

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..hardware.gpu import Gpu
    from .estimate import Assumption, Verdict

LEAST = "the least that context, libraries and NCCL were measured at (estimator/allocator/runtime.json)"
MOST = "the most that context, libraries and NCCL were measured at (estimator/allocator/runtime.json)"
FULL = "less: near the card's end torch gives free segments back, an engine shrinks its cache"
EXPECTED = "what is expected, which lies between least and most"
NOTHING = "no less than nothing"


class Tiers(NamedTuple):
    """The terms of each tier; every one begins with the figure that it builds on.

    reserved   allocated, and the free blocks of the segments that torch keeps
    process    reserved, and what lies outside torch
    low        the least that the process takes: least fragmentation and overhead, less what assumptions may take away
    high       the most: largest fragmentation and overhead, and what assumptions may add; or the card's end
    """

    reserved: tuple[Term, ...]
    process: tuple[Term, ...]
    low: tuple[Term, ...]
    high: tuple[Term, ...]

    @property
    def terms(self) -> tuple[Term, ...]:
        """All of them, tier by tier."""
        return (*self.reserved, *self.process, *self.low, *self.high)

    def per_gpu(self, allocated: int) -> PerGpu:
        """The sums, beside the bytes allocated at the peak."""
        return PerGpu(allocated, *(total(found) for found in self))

    def widened(self, found: Iterable[Assumption]) -> Tiers:
        """With every fact's bytes off `low` and on `high`, which still hold `process` between them."""
        given = list(found)
        low = [*self.low, *(line("low", -item.low, _told(item)) for item in given if item.low)]
        high = [*self.high, *(line("high", item.high, _told(item)) for item in given if item.high)]
        return self._replace(low=at_least("low", low, 0, NOTHING), high=tuple(high)).holding()

    def holding(self) -> Tiers:
        """With `process` between `low` and `high`."""
        process = total(self.process)
        low, high = at_most("low", self.low, process, EXPECTED), at_least("high", self.high, process, EXPECTED)
        return self._replace(low=low, high=high)

    def capped(self, gpu: Gpu | None, found: Verdict) -> Tiers:
        """What fits a card takes no more than the card has: torch gives free segments back first."""
        if gpu is None or found != "fits":
            return self
        return self._replace(high=at_most("high", self.high, gpu.usable, FULL))


def tier(name: str, *lines: tuple[int, str]) -> tuple[Term, ...]:
    """A term for each (bytes, label) that is not 0."""
    return tuple(line(name, size, label) for size, label in lines if size)


def at_least(name: str, found: Iterable[Term], size: int, label: str) -> tuple[Term, ...]:
    """Terms of a tier that sum to no less than `size`."""
    found = tuple(found)
    return (*found, *tier(name, (max(0, size - total(found)), label)))


def at_most(name: str, found: Iterable[Term], size: int, label: str) -> tuple[Term, ...]:
    """Terms of a tier that sum to no more than `size`."""
    found = tuple(found)
    return (*found, *tier(name, (min(0, size - total(found)), label)))


def _told(item: Assumption) -> str:
    return f"{item.field} {item.value}: assumed"
