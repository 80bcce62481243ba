"""The requests that one micro step makes of torch's allocator, in their order."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

from ..activations import computing, replay, unread
from ..forward.network import network
from ..memoize import recalled
from ..states.stage import pipeline
from ..tape.tape import Tape
from ..tape.tensor import Storage
from .allocator import SMALL_REQUEST, block_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...job.job import Job
    from ...models.model import Model
    from ..forward.network import Network
    from ..tape.tensor import Parameter, Tensor

Place = tuple[int, bool]
"""A segment of the tape, and whether it is its backward pass."""


class Pass(NamedTuple):
    """One layer's forward or backward: events begin..end."""

    begin: int
    end: int
    backward: bool


class Trace(NamedTuple):
    """Tensor numbers in the order of requests; ~number where it is freed.

    sizes      bytes of each tensor
    gradients  numbers of the tensors that are handed over as a parameter's gradient where they end
    small      the most bytes that requests of at most 1 MiB, which `events` leaves out, hold at once
    passes     where in `events` each layer's forward or backward begins and ends, in their order
    before     numbers of the tensors that the micro step before has left;  after  those that it leaves itself
    opening    the requests of the first micro step where later ones add to its gradients, which stay as they are made
    evaluation  those of an evaluation's pass, which comes after training steps
    """

    events: list[int]
    sizes: list[int]
    gradients: frozenset[int]
    small: int
    passes: tuple[Pass, ...] = ()
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    opening: Trace | None = None
    evaluation: Trace | None = None


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
    """A tape that notes every request with the segment in which it is made.

    runs   stretches of requests in one segment;  births, deaths  the place of each tensor's first and last moment
    """

    storage = Recorded  # type: ignore[assignment]

    def __init__(self) -> None:
        self.runs: list[tuple[Place, list[int]]] = []
        self.sizes: list[int] = []
        self.births: list[Place] = []
        self.deaths: list[Place] = []
        self.handed: set[int] = set()
        self.before: list[int] = []
        self.after: list[int] = []
        super().__init__()

    def begins_with(self, storages: Iterable[Storage]) -> None:
        """What the micro step before has left."""
        self.before = [x.number for x in storages if isinstance(x, Recorded)]

    def ends_with(self, storages: Iterable[Storage]) -> None:
        """What it leaves."""
        self.after = [x.number for x in storages if isinstance(x, Recorded)]

    def begun(self, size: int) -> int:
        """Note a request, and return its number."""
        number = len(self.sizes)
        self.sizes.append(size)
        self.births.append(self._note(number))
        self.deaths.append((-1, True))
        return number

    def ended(self, number: int) -> None:
        """Note that a tensor is freed."""
        self.deaths[number] = self._note(~number)

    def scratch(self, *sizes: int) -> None:
        """Request all, and free them at once."""
        super().scratch(*sizes)
        for number in [self.begun(size) for size in sizes if size]:
            self.ended(number)

    def drop_behind(self, layers: int) -> None:
        """Take back the requests of what follows the layers, but for what they are handed or hand on."""
        inside = set(range(layers + 1))
        own = {
            number
            for number, (birth, death) in enumerate(zip(self.births, self.deaths, strict=True))
            if birth[0] not in inside and death[0] not in inside
        }
        for _, events in self.runs:
            events[:] = [event for event in events if (event if event >= 0 else ~event) not in own]

    def _note(self, event: int) -> Place:
        place = (self._segment, self._backward)
        if not self.runs or self.runs[-1][0] != place:
            self.runs.append((place, []))
        self.runs[-1][1].append(event)
        return place

    def _accumulate(self, leaf: Parameter) -> None:
        waiting: Tensor | None = leaf.buffers[0] if leaf.buffers else None
        storage = waiting.storage if waiting is not None else None
        super()._accumulate(leaf)
        if not self.accumulated and isinstance(storage, Recorded) and storage.number >= 0:
            self.ended(storage.number)
            self.handed.add(storage.number)
            storage.number = -1


def trace(job: Job, model: Model, inputs_stay: bool = False, head: bool = True) -> Trace:
    """The requests of one micro step.

    One layer of each kind and the last layer are run on the tape; each stands for all others of its kind, one after
    the other.

    inputs_stay   each layer's checkpointed input and its gradient live until the end of the backward pass
    head          whether final norm, head and loss are there; a pipeline stage without them is handed the gradient of
                  its last layer's output by the next stage
    """
    return _trace(computing(job), model, inputs_stay, head)


@recalled(4)
def _trace(job: Job, model: Model, inputs_stay: bool, head: bool) -> Trace:
    last = pipeline(job, model)[-1]
    whole = network(last.job, last.whole)
    kinds, counts = _unfolding(whole)
    tape = Recorder()
    replay(whole, kinds, tape)
    if not head:
        tape.drop_behind(len(kinds))
    return Unfolding(tape, counts, inputs_stay).trace()


def _unfolding(network: Network) -> tuple[list[int], list[int]]:
    """The layers to run, one of each kind and the last one, and how many each stands for."""
    kinds, assigned = network.kinds()
    counts = [assigned.count(kind) for kind in range(len(kinds))]
    if counts and counts[assigned[-1]] > 1:
        counts[assigned[-1]] -= 1
        return [*kinds, network.layers - 1], [*counts, 1]
    return kinds, counts


def evaluation_trace(job: Job, model: Model) -> Trace | None:
    """The requests of one pass of the evaluation; None where there is none, or no length is known."""
    from ..evaluation import evaluates, evaluating

    if not evaluates(job):
        return None
    return _evaluation(computing(evaluating(job)), model, job.evaluation.caches)


@recalled(4)
def _evaluation(job: Job, model: Model, caches: bool) -> Trace:
    from ..evaluation import scored

    whole = network(job, model)
    kinds, counts = _unfolding(whole)
    tape = Recorder().configured(whole.options)
    with unread(model):
        scored(whole, kinds, tape, caches=caches, requests=True)
    return Unfolding(tape, counts, False).trace()


class Unfolding:
    """A tape of one layer of each kind, with `counts` layers of each put in its place.

    A layer hands a few tensors up to the next one in forward and down to the one before in backward; among layers of
    one kind, what one hands on is what the next one was handed. What has no such pair lives to the end of the step.
    """

    def __init__(self, tape: Recorder, counts: list[int], inputs_stay: bool) -> None:
        self.tape = tape
        self.counts = {segment: count for segment, count in enumerate(counts, 1) if count > 1}
        self.layers = len(counts)
        self.same: dict[tuple[int, Place], int] = {}
        self.staying: dict[int, None] = {}
        self.passes: list[Pass] = []
        if inputs_stay:
            self._keep_inputs()
        for segment in self.counts:
            self._pair(segment)

    def trace(self) -> Trace:
        """The requests of all layers, numbered anew: the instances of a tensor one after the other."""
        sizes, births = self.tape.sizes, self.tape.births
        new: list[int] = []
        numbers: list[int] = []
        handed = bytearray()
        for number, size in enumerate(sizes):
            numbers.append(len(new))
            if size > SMALL_REQUEST:
                count = self.counts.get(births[number][0], 1)
                new += [size] * count
                handed += bytes([number in self.tape.handed]) * count
        events, small = self._unfolded(numbers)
        before, after = (
            tuple(numbers[number] for number in found if sizes[number] > SMALL_REQUEST)
            for found in (self.tape.before, self.tape.after)
        )
        return _closed(events, new, handed, small, self.passes)._replace(before=before, after=after)

    def _unfolded(self, numbers: list[int]) -> tuple[list[int], int]:
        """The requests in their order by new numbers, and the most bytes that small ones hold at once.

        All repetitions of a stretch but the first and the last differ by the instances alone, so that the second one
        is written down and shifted.
        """
        sizes = self.tape.sizes
        events: list[int] = []
        held = most = 0
        for place, recorded in self.tape.runs:
            count = self.counts.get(place[0], 1)
            for step in sorted({0, min(1, count - 1), count - 1}):
                large: list[int] = []
                change = rise = 0
                for event, instance in self._step(place, recorded, step, count):
                    number = event if event >= 0 else ~event
                    if sizes[number] > SMALL_REQUEST:
                        mine = numbers[number] + instance
                        large.append(mine if event >= 0 else ~mine)
                    else:
                        change += block_size(sizes[number]) * (1 if event >= 0 else -1)
                        rise = max(rise, change)
                times = max(1, count - 2) if step == 1 and count > 2 else 1
                most = max(most, held + rise, held + (times - 1) * change + rise)
                held += times * change
                for far in range(times):
                    shift = -far if place[1] else far
                    begin = len(events)
                    events += [x + shift if x >= 0 else x - shift for x in large] if shift else large
                    if 0 < place[0] <= self.layers:
                        self.passes.append(Pass(begin, len(events), place[1]))
        for number in self.staying:
            if sizes[number] > SMALL_REQUEST:
                count = self.counts.get(self.tape.births[number][0], 1)
                events += [~(numbers[number] + instance) for instance in range(count)]
        return events, most

    def _step(self, place: Place, recorded: list[int], step: int, count: int) -> Iterator[tuple[int, int]]:
        """(event, instance of the layer that made the tensor) of one repetition of a stretch."""
        instance = count - 1 - step if place[1] else step
        for event in recorded:
            if event >= 0:
                yield event, instance
            elif ~event not in self.staying:
                yield from self._freed(~event, place, instance, step == count - 1)

    def _freed(self, number: int, place: Place, instance: int, final: bool) -> Iterator[tuple[int, int]]:
        """What an instance of a place frees where the recorded one frees `number`."""
        segment, backward = self.tape.births[number]
        count = self.counts.get(segment, 1)
        if segment == place[0]:
            yield ~number, instance
        elif not backward and place[0] == segment + 1:
            if instance == 0:
                yield ~number, count - 1
            elif (number, place) in self.same:
                yield ~self.same[number, place], instance - 1
        elif backward and place == (segment - 1, True):
            if instance == self.counts.get(place[0], 1) - 1:
                yield ~number, 0
            elif (number, place) in self.same:
                yield ~self.same[number, place], instance + 1
        elif final:
            for each in range(count):
                yield ~number, each

    def _keep_inputs(self) -> None:
        """Layers' inputs are never freed, and each layer's backward leaves a gradient of the same size behind."""
        tape = self.tape
        for x in range(len(tape.sizes)):
            (birth, was), (death, backward) = tape.births[x], tape.deaths[x]
            if was or not backward or not 0 <= birth <= self.layers or death != birth + 1:
                continue
            self.staying[x] = None
            for place, events in tape.runs:
                if place == (death, True):
                    self.staying[len(tape.sizes)] = None
                    events.append(len(tape.sizes))
                    tape.sizes.append(tape.sizes[x])
                    tape.births.append(place)
                    tape.deaths.append((-1, True))

    def _pair(self, segment: int) -> None:
        """What a repeated layer is handed, with what it hands on to the next one at the same point."""
        for origin, made, far in (
            ((segment - 1, False), (segment, False), segment + 1),
            ((segment + 1, True), (segment, True), segment - 1),
        ):
            for near in (True,) if made[1] else (False, True):
                given = self._handed(origin, (segment, near))
                passed = self._handed(made, (far, near))
                self.same.update({(x, (segment, near)): y for x, y in zip(given, passed, strict=False)})

    def _handed(self, origin: Place, end: Place) -> list[int]:
        births, deaths = self.tape.births, self.tape.deaths
        return [x for x, place in enumerate(births) if place == origin and deaths[x] == end]


def _closed(events: list[int], sizes: list[int], handed: bytearray, small: int, passes: list[Pass]) -> Trace:
    """A Trace in which each tensor is freed once: what was freed before is left out, what never is ends with it."""
    state = bytearray(len(sizes))
    found: list[int] = []
    moved = {0: 0}
    begin = 0
    for end in sorted({len(events), *(place for item in passes for place in item[:2])}):
        for event in events[begin:end]:
            if event >= 0:
                state[event] = ALIVE
            elif state[~event] == ALIVE:
                state[~event] = FREED
            else:
                continue
            found.append(event)
        moved[end] = len(found)
        begin = end
    gradients = frozenset(number for number in compress(range(len(sizes)), handed) if state[number] == FREED)
    found += [~number for number, last in enumerate(state) if last == ALIVE]
    stretches = tuple(Pass(moved[begin], moved[end], backward) for begin, end, backward in passes)
    return Trace(found, sizes, gradients, small, stretches)


ALIVE, FREED = 1, 2
