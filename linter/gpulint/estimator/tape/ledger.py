"""Bytes alive, and the peak of each segment of a training step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from weakref import ReferenceType

END = -2
"""The segment after backward."""


class Event(NamedTuple):
    """The most bytes alive while a segment ran with `gradients` trainable elements' gradients already made."""

    segment: int
    backward: bool
    live: int
    logits: int
    gradients: int


class Bound(NamedTuple):
    """Bytes alive and gradients made where a segment begins.

    In backward, without the gradients that wait for what came before the layers: they are there once, however many
    layers add to them.
    """

    live: int
    logits: int
    gradients: int


class Ledger:
    """What is alive as tensors come and go, segment by segment.

    A segment is a layer's forward or backward; the caller adds to `live` and raises `_peak`. `released` are bytes of
    what layers share (`watch`) that ended in a segment's backward, as nothing below reads it.
    """

    def __init__(self) -> None:
        self.live = 0
        self.logits = 0
        self.gradients = 0
        self.released: dict[int, int] = {}
        self._shared: list[tuple[ReferenceType[Any], int]] = []
        self.events: list[Event] = []
        self.begins: dict[tuple[int, bool], Bound] = {}
        self.passed: set[tuple[int, bool]] = set()
        self._before = 0
        self._segment = -1
        self._backward = False
        self._peak = 0
        self._peak_logits = 0
        self._outside = 0
        self._waiting = 0

    def scratch(self, *sizes: int) -> None:
        """Bytes that a kernel allocates and frees within one call, by tensor."""
        size = sum(sizes)
        if self.live + size > self._peak:
            self._peak = self.live + size
            self._peak_logits = self.logits

    def beside(self, size: int, e: int) -> None:  # noqa: ARG002
        """Bytes of layers that are not replayed, `e` an element, alive at this instant; no request of its own."""
        Ledger.scratch(self, size)

    @property
    def highest(self) -> int:
        """The most bytes alive so far outside every segment."""
        return max(self._before, self._peak)

    def watch(self, shared: Iterable[tuple[ReferenceType[Any], int]]) -> None:
        """Note in which segment storages that layers share end; those that nothing holds are left out."""
        self._shared += [item for item in shared if item[0]() is not None]

    def enter(self, segment: int, backward: bool = False) -> None:
        """Begin a segment; the one before is closed with its peak."""
        self._close()
        for found, size in self._shared:
            if found() is None:
                self.released[self._segment] = self.released.get(self._segment, 0) + size
        self._shared = [item for item in self._shared if item[0]() is not None]
        self._segment = segment
        self._backward = backward
        if backward and segment > 0:
            self._waiting = self._outside
        live = self.live - (self._waiting if backward and segment >= 0 else 0)
        if (segment, backward) in self.passed or (segment, backward) not in self.begins:
            self.begins[segment, backward] = Bound(live, self.logits, self.gradients)
        self.passed.discard((segment, backward))

    def begin_anew(self, segment: int) -> None:
        """What is alive where a segment's backward begins is noted when it is entered next, if it is."""
        self.passed.add((segment, True))

    def _close(self) -> None:
        if self._segment >= 0:
            self.events.append(Event(self._segment, self._backward, self._peak, self._peak_logits, self.gradients))
        self._peak = self.live
        self._peak_logits = self.logits
