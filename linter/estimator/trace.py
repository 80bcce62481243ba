"""The requests that one micro step makes of torch's allocator, in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .activations import layer_kinds, replay
from .allocator import SMALL_REQUEST, block_size
from .setting import Setting
from .stage import last_stage
from .tape import Tape
from .tensor import Storage

if TYPE_CHECKING:
    from ..job import Job
    from ..models.model import Model
    from .tensor import Parameter, Tensor

LAYERS = 3
"""Layers that are replayed in full, besides the first and at least one of each kind."""


class Trace(NamedTuple):
    """Tensor numbers in the order of requests; ~number where it is freed.

    sizes      bytes of each tensor;  copies  how many layers make one like it that lives on when the layer is done
    gradients  numbers of the tensors that are handed over as a parameter's gradient where they end
    small      the most bytes that requests of at most 1 MiB, which the others leave out, hold at once
    """

    events: list[int]
    sizes: list[int]
    copies: list[int]
    gradients: frozenset[int]
    small: int


class Recorded(Storage):
    """A storage that notes its end."""

    __slots__ = ("number",)

    def __init__(self, tape: Recorder, size: int, logits: bool) -> None:
        super().__init__(tape, size, logits)
        self.number = tape.begun(size) if size else -1

    def __del__(self) -> None:
        super().__del__()
        if self.number >= 0:
            self.tape.ended(self.number)  # type: ignore[attr-defined]


class Recorder(Tape):
    """A tape that notes every request, and the segments in which each tensor begins and ends."""

    storage = Recorded  # type: ignore[assignment]

    def __init__(self) -> None:
        self.requests: list[int] = []
        self.sizes: list[int] = []
        self.handed: list[int] = []
        self.births: list[tuple[int, bool]] = []
        self.deaths: dict[int, tuple[int, bool]] = {}
        super().__init__()

    def begun(self, size: int) -> int:
        """Note a request, and return its number."""
        number = len(self.births)
        self.requests.append(number)
        self.sizes.append(size)
        self.births.append((self._segment, self._backward))
        return number

    def ended(self, number: int) -> None:
        """Note that a tensor is freed."""
        self.requests.append(~number)
        self.deaths[number] = (self._segment, self._backward)

    def scratch(self, size: int) -> None:
        """Request and free at once."""
        super().scratch(size)
        if size:
            self.ended(self.begun(size))

    def _accumulate(self, leaf: Parameter) -> None:
        waiting: Tensor | None = leaf.buffers[0] if leaf.buffers else None
        storage = waiting.storage if waiting is not None else None
        super()._accumulate(leaf)
        if not self.accumulated and isinstance(storage, Recorded) and storage.number >= 0:
            self.ended(storage.number)
            self.handed.append(storage.number)
            storage.number = -1


def trace(job: Job, model: Model, inputs_stay: bool = False) -> Trace:
    """The requests of one micro step, some layers standing for all.

    A layer's temporaries are freed before the next one runs, which finds the same blocks; what outlives the layer
    (saved tensors, gradients of weights) exists once for each. So a few layers of each kind are replayed, and
    what outlives them counts as often as there are layers like it.

    inputs_stay   each layer's checkpointed input and its gradient live until the end of the backward pass
    """
    s = Setting(*last_stage(job, model))
    chosen = _chosen(layer_kinds(s)[1])
    tape = Recorder()
    tape.autocast = s.autocast
    tape.accumulated = job.gradient_accumulation_steps > 1
    replay(s, [layer for layer, _ in chosen], tape)
    copies = [1] * len(tape.sizes)
    staying = []
    for number, (segment, backward) in enumerate(tape.births):
        if not 0 < segment <= len(chosen):
            continue
        end, passed = tape.deaths[number]
        outlives = passed or end > segment + 1 if not backward else inputs_stay and end < segment
        if outlives:
            copies[number] = chosen[segment - 1][1]
            staying.append(number)
    for number in tape.handed:
        segment = tape.deaths[number][0]
        if 0 < segment <= len(chosen):
            copies[number] = chosen[segment - 1][1]
    if inputs_stay:
        kept = set(staying)
        tape.requests[:] = [event for event in tape.requests if ~event not in kept]
        tape.requests += [~number for number in staying]
    return _without_small(tape, copies)


def _without_small(tape: Recorder, copies: list[int]) -> Trace:
    events, held, most = [], 0, 0
    for event in tape.requests:
        number = event if event >= 0 else ~event
        if tape.sizes[number] > SMALL_REQUEST:
            events.append(event)
        else:
            held += copies[number] * block_size(tape.sizes[number]) * (1 if event >= 0 else -1)
            most = max(most, held)
    return Trace(events, tape.sizes, copies, frozenset(tape.handed), most)


def _chosen(assigned: list[int]) -> list[tuple[int, int]]:
    """(layer, how many it stands for): of each kind a share of LAYERS, evenly spaced."""
    places: dict[int, list[int]] = {}
    for layer, kind in enumerate(assigned):
        places.setdefault(kind, []).append(layer)
    found = []
    for same in places.values():
        count = max(1, -(-LAYERS * len(same) // len(assigned)))
        count = min(count, len(same))
        cuts = [i * len(same) // count for i in range(count + 1)]
        found += [(same[a], b - a) for a, b in zip(cuts, cuts[1:])]
    return sorted(found)
