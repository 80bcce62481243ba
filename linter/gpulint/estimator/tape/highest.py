"""A recording of the highest point of a forward pass that fills a cache: for `--explain` of a prompt's pass."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from .recording import Recording

if TYPE_CHECKING:
    from .recording import Alive


class Highest(Recording):
    """A recording that keeps what was alive at the highest point before and since the layers began."""

    def __init__(self) -> None:
        super().__init__()
        self._first: tuple[Alive, int] = (Counter(), 0)
        self._earlier: tuple[Alive, int] = (Counter(), 0)

    def store(self, size: int) -> None:
        """The cache takes keys and values of `size` bytes, which count as its own before too."""
        if self.caching and self._peak - size > self._before:
            self._earlier = self._at_peak, size
        super().store(size)

    def enter(self, segment: int, backward: bool = False) -> None:
        """The layers begin: what was highest before them is kept."""
        self._first = self.latest()
        super().enter(segment, backward)

    def first(self, cache: int) -> tuple[Alive, int]:
        """What is alive at the highest point before the layers, and how many bytes the full `cache` counts of it."""
        return self._first[0], self._first[1] + cache

    def latest(self) -> tuple[Alive, int]:
        """The same of the highest point since the layers began."""
        return self._earlier if self._before >= self._peak else (self._at_peak, 0)
