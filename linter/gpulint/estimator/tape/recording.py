"""A tape that knows what each tensor is: for `--explain` only, several times slower than the plain one.

Where a tensor is made is read from the functions on the call stack, which are named after what they compute; a tensor
of the backward pass is named after the function that recorded its node. `recording.json` holds the words.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from .tape import Tape
from .tensor import Storage

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from .tensor import Backward, Node, Operand, Parameter, Tensor

WIDTHS = {8: "64-bit", 4: "float32", 2: "16-bit"}

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_ROOMS = os.path.dirname(_FOLDER)
_PLUMBING = frozenset({"autograd", "tape", "tensor", "recording"})


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
        where, what = self._running
        named = _words()["backward"].get(_innermost(sys._getframe(2)).co_name)  # noqa: SLF001
        return where, named or what


def _read(frame: FrameType | None) -> tuple[str, str]:
    """(where, what) from the functions of this package on the stack, innermost first."""
    words = _words()
    where = what = ""
    while frame is not None and not where:
        code = frame.f_code
        folder, name = os.path.split(code.co_filename)
        module = name.removesuffix(".py")
        if module in _PLUMBING and code.co_name == "cast":
            what = what or words["what"]["cast"]
        if folder.startswith(_ROOMS) and module not in _PLUMBING:
            if not what:
                what = words["what"].get(code.co_name, code.co_name.strip("_").replace("_", " "))
            where = _where(f"{module}.{code.co_name}", module, frame, words)
        frame = frame.f_back
    return where or "model", what or "tensor"


def _innermost(frame: FrameType) -> CodeType:
    """The function of this package that makes the tensor."""
    while os.path.basename(frame.f_code.co_filename).removesuffix(".py") in _PLUMBING and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code


def _where(function: str, module: str, frame: FrameType, words: dict[str, dict[str, str]]) -> str:
    role = getattr(_local(frame, "layer"), "role", None) if module == "linear" else None
    if role is not None:
        return words["roles"].get(str(role), str(role).replace("_", " "))
    if function == "decoder.norm":
        return str(words["slots"][str(_local(frame, "slot"))])
    return words["where"].get(function, "") or words["where"].get(module, "")


def _local(frame: FrameType, name: str) -> object:
    """A local variable. Before Python 3.13 `f_locals` is a copy that would keep tensors alive, so it is emptied."""
    found: Any = frame.f_locals
    value: object = found.get(name)
    if isinstance(found, dict):
        found.clear()
    return value


@cache
def _words() -> dict[str, dict[str, str]]:
    with open(os.path.join(_FOLDER, "recording.json"), encoding="utf-8") as stream:
        found: dict[str, dict[str, str]] = json.load(stream)
    return found
