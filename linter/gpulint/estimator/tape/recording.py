"""A tape that knows what each tensor is: for `--explain` only, several times slower than the plain one.

Where a tensor is made is read from the functions on the call stack, which state their words (`labels.py`); a tensor of
the backward pass has those of the function that recorded its node.
"""

from __future__ import annotations

import sys
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from .labels import NOTHING, STATED, Stated
from .tape import Tape
from .tensor import Storage

if TYPE_CHECKING:
    from types import FrameType

    from .tensor import Backward, Node, Operand, Parameter, Tensor

WIDTHS = {8: "64-bit", 4: "float32", 2: "16-bit"}

_PACKAGE = __name__.removesuffix("tape.recording")
_PLUMBING = frozenset(f"{_PACKAGE}tape.{name}" for name in ("autograd", "backward", "recording", "tape", "tensor"))
"""Modules whose functions make tensors for others."""


class Label(NamedTuple):
    """A tensor by where it is made, what it is there, and its size. `segment` is the tape's, `logits` its component."""

    segment: int
    logits: bool
    where: str
    what: str
    n: int
    e: int


Alive = Counter[Label]
"""Bytes alive by label."""


class Named(Storage):
    """A storage with its label."""

    __slots__ = ("label",)

    def __init__(self, tape: Recording, size: int, logits: bool) -> None:
        super().__init__(tape, size, logits)
        self.label = tape.label()
        tape.storages[next(tape.numbers)] = self


class Recording(Tape):
    """A tape with what is alive at each event's peak (`at_events`) and where each segment begins (`at_begins`)."""

    storage = Named  # type: ignore[assignment]

    def __init__(self) -> None:
        # by number, as they are made: an order by address would leave to chance which of two equal tensors is told
        self.storages: WeakValueDictionary[int, Named] = WeakValueDictionary()
        self.numbers = count()
        self.at_events: list[Alive] = []
        self.at_begins: dict[tuple[int, bool], Alive] = {}
        self._size = (0, 1)
        self._made: dict[int, tuple[str, str]] = {}
        self._running: tuple[str, str] | None = None
        self._at_peak: Alive = Counter()
        self._labelled: list[tuple[Label, int]] = []
        self._labels_before: list[tuple[Label, int]] = []
        super().__init__()

    def label(self) -> Label:
        """The label of a tensor made now."""
        where, what = self._place()
        n, e = self._size
        return Label(
            self._segment,
            False,
            where,
            what.format(width=WIDTHS.get(e, "narrow"), dropout="mask" if e == 1 else "output"),
            n,
            e,
        )

    def alive(self) -> Alive:
        """What is alive now."""
        found: Alive = Counter()
        for storage in self.storages.values():
            if storage.size:
                found[storage.label._replace(logits=storage.logits)] += storage.size
        return found

    def new(self, n: int, e: int, logits: bool = False) -> Tensor:
        """A fresh tensor; where it makes a new peak, what is alive is noted."""
        before, self._size = self._peak, (n, e)
        made = super().new(n, e, logits)
        if self._peak > before:
            self._at_peak = self.alive()
        return made

    def scratch(self, *sizes: int) -> None:
        """A kernel's own workspace."""
        before, size = self._peak, sum(sizes)
        super().scratch(size)
        if self._peak > before:
            where, what = self._place()
            self._at_peak = self.alive()
            self._at_peak[Label(self._segment, False, where, f"{what}, workspace", size, 1)] += size

    def beside(self, size: int, e: int) -> None:
        """What the layers that are not replayed hold with their cached keys."""
        before = self._peak
        super().beside(size, e)
        if self._peak > before:
            self._at_peak = self.alive()
            label = Label(self._segment, False, "query, key and value projection", "cached output", size // e, e)
            self._at_peak[label] += size

    def enter(self, segment: int, backward: bool = False) -> None:
        """Begin a segment."""
        first = (segment, backward) in self.passed or (segment, backward) not in self.at_begins
        super().enter(segment, backward)
        if backward and segment > 0:
            self._labels_before = list(self._labelled)
        if first:
            found = self.alive()
            for label, size in self._labels_before if backward and segment >= 0 else ():
                found[label] -= size
            self.at_begins[segment, backward] = found

    def node(
        self, inputs: tuple[Operand, ...], back: Backward, saves: int = 1, slots: int = 1, makes: int = 0
    ) -> Node | None:
        """Record a backward function, and by what it was recorded."""
        made = super().node(inputs, back, saves, slots, makes)
        if made is not None:
            self._made[made.seq] = self._place()
        return made

    def _run(self, node: Node, ready: list[tuple[int, Node]]) -> None:
        where, what = self._made.get(node.seq, ("backward", "gradient"))
        self._running = (where, what if what.startswith("gradient") else f"gradient of {what}")
        super()._run(node, ready)
        self._running = None

    def _deliver(self, node: Node, slot: int, gradient: Tensor) -> None:
        if node.segment == 0 and (node.buffers is None or node.buffers[slot] is None):
            storage = gradient.storage
            if isinstance(storage, Named):
                self._labelled.append((storage.label._replace(logits=storage.logits), storage.size))
        super()._deliver(node, slot, gradient)

    def _accumulate(self, leaf: Parameter) -> None:
        super()._accumulate(leaf)
        if not self.accumulated:
            self._at_peak = self.alive()

    def _close(self) -> None:
        if self._segment >= 0:
            self.at_events.append(self._at_peak)
        super()._close()
        self._at_peak = self.alive()

    def _place(self) -> tuple[str, str]:
        if self._running is None:
            return _read(sys._getframe(2))  # noqa: SLF001
        part, what = self._running
        return part, _innermost(sys._getframe(2)).backward or what  # noqa: SLF001


def _read(frame: FrameType | None) -> tuple[str, str]:
    """(part of the model, what) as the functions of this package on the stack state it, innermost first."""
    part = what = ""
    while frame is not None and not part:
        name = str(frame.f_globals.get("__name__"))
        if name in _PLUMBING:
            what = what or STATED.get(frame.f_code, NOTHING).what
        elif name.startswith(_PACKAGE):
            stated = STATED.get(frame.f_code, NOTHING)
            what = what or stated.what or frame.f_code.co_name.strip("_").replace("_", " ")
            part = _part(stated, frame)
        frame = frame.f_back
    return part or "model", what or "tensor"


def _innermost(frame: FrameType) -> Stated:
    """The words of the function of this package that makes the tensor."""
    while str(frame.f_globals.get("__name__")) in _PLUMBING and frame.f_back is not None:
        frame = frame.f_back
    return STATED.get(frame.f_code, NOTHING)


def _part(stated: Stated, frame: FrameType) -> str:
    if stated.by is not None:
        name, words = stated.by
        value = _value(frame, *name.split("."))
        if value is not None:
            return words.get(str(value), str(value).replace("_", " "))
    return stated.part or str(frame.f_globals.get("PART") or "")


def _value(frame: FrameType, name: str, attribute: str = "") -> object:
    """A local variable. Before Python 3.13 `f_locals` is a copy that would keep tensors alive, so it is emptied."""
    found: Any = frame.f_locals
    value: object = found.get(name)
    if isinstance(found, dict):
        found.clear()
    return getattr(value, attribute, None) if attribute else value
