"""The replay's events at the layers of the whole model: what a stack of layers keeps below and above each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .peak_candidate import PeakCandidate
from .tape.ledger import END

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .forward.network import Network
    from .tape.ledger import Event
    from .tape.tape import Tape


class Placed(NamedTuple):
    """A candidate, its event, the replayed layer in flight and that of the whole model (see `Stack.at`).

    old         bytes and logits that the micro step before leaves (see `before`)
    held        bytes that the layers not replayed hold beside their own tensors;  shared  that they have in common
    """

    candidate: PeakCandidate
    event: Event
    here: int
    place: int
    old: tuple[int, int]
    held: int
    shared: int


def placed(network: Network, tape: Tape, kinds: list[int], assigned: list[int]) -> Iterator[Placed]:
    """Every event of the replay, at the layers of the whole model where it is largest.

    Behind the forward function autocast's copies of weights are gone, as in backward, but for those that were saved.
    """
    count = len(kinds)
    numbers = {event: number for number, event in reversed([*enumerate(tape.events)])}
    replayed, whole = Stack(tape, count, list(range(count))), Stack(tape, count, assigned)
    kept = before(network, tape, assigned)
    kind, trainable = network.dims.prompt.kind, network.weights.trainable
    for (segment, backward), events in peaks(tape.events).items():
        phase = "backward" if backward else "loss" if segment in (count + 2, count + 3) else "forward"
        ended = backward or segment > count + 2
        here = max(-1, min(segment - 1, count))
        places = whole.places(segment, backward) if 0 <= here < count else [-1 if here < 0 else len(assigned)]
        for place in places:
            size, made = whole.at(place, ended)
            there, done = replayed.at(here, ended)
            held, shared = (
                a - b for a, b in zip(whole.beside(place, ended), replayed.beside(here, ended), strict=True)
            )
            for e in events:
                layer = place if 0 <= place < len(assigned) else None
                every = tape.accumulated or (phase == "backward" and _early(kind, place, len(assigned)))
                gradients = trainable if every else e.gradients + made - done
                fresh = e.gradients - tape.begins[segment, backward].gradients
                old = (kept[0] + whole.above(place), kept[1]) if phase == "forward" else (0, 0)
                size_here = e.live - e.logits + size - there + old[0]
                logits = e.logits + old[1]
                found = PeakCandidate(phase, size_here, logits, gradients, layer, fresh, numbers[e])
                yield Placed(found, e, here, place, old, held, shared)


def _early(kind: str, place: int, layers: int) -> bool:
    """Whether all gradients of an adapter are there before the backward pass has come to layer `place`.

    AdaLoRA adds to the loss how far its matrices are from orthogonal ones, and backward makes those gradients first.
    Lily's, of matrices that layers share, wait for the last of those: from the second layer on all are counted.
    """
    return kind == "adalora" or (kind == "lily" and place < layers - 1)


def before(network: Network, tape: Tape, assigned: list[int]) -> tuple[int, int]:
    """What the micro step before leaves alive through forward: bytes that its graph holds, and its logits.

    A training loop whose variable `logits` is bound anew only behind the forward pass keeps the old ones, and with
    them the graph, of which backward has freed the saved tensors but not what functions hold beside them.
    """
    dims = network.dims
    if not dims.loss.keeps_graph:
        return 0, 0
    outside = sum(size for segment, size in tape.lasting.items() if segment > max(assigned) + 1)
    graph = outside + sum(tape.lasting.get(kind + 1, 0) for kind in assigned)
    modules = network.weights.outside()
    vocabulary = modules.role("head") or modules.need("embedding")
    width = (tape.autocast or vocabulary.weight.e) if dims.loss.never_upcast else 4
    return graph, width * dims.rows * (vocabulary.weight.n // dims.hidden)


class Stack:
    """What a stack of layers keeps alive below each place, and the gradients of the layers above it.

    What layers share ends with the lowest one that reads it, and is counted there alone.
    """

    def __init__(self, tape: Tape, kinds: int, assigned: list[int]) -> None:
        begins, end = tape.begins, tape.begins[END, True]
        starts = [begins.get((k, True), end) for k in range(kinds + 2)]
        self.assigned = assigned
        self.kept = [[0], [0]]
        self.made = [0]
        self.pinned, self.lasting, self.shared = [0], [0], [0]
        seen: set[int] = set()
        for kind in assigned:
            pinned, lasting = tape.pinned.get(kind + 1, 0), tape.lasting.get(kind + 1, 0)
            self.pinned.append(self.pinned[-1] + pinned)
            self.lasting.append(self.lasting[-1] + lasting)
            forward = begins[kind + 2, False].live - begins[kind + 1, False].live
            self.kept[0].append(self.kept[0][-1] + forward)
            shared = tape.released.get(kind + 1, 0) if kind in seen else 0
            seen.add(kind)
            self.shared.append(self.shared[-1] + shared)
            freed = starts[kind + 1].live - starts[kind].live - shared
            self.kept[1].append(self.kept[1][-1] + freed + pinned + lasting)
            self.made.append(self.made[-1] + starts[kind].gradients - starts[kind + 1].gradients)

    def above(self, place: int) -> int:
        """Bytes that backward has pinned in the layers above `place`; -1 is before the stack, its length behind."""
        return self.pinned[-1] - self.pinned[min(place + 1, len(self.assigned))]

    def at(self, place: int, backward: bool) -> tuple[int, int]:
        """Bytes kept below layer `place`, with those pinned above it or lasting, and gradients made above it."""
        kept = self.kept[backward][max(0, place)]
        if not backward or place >= len(self.assigned):
            return kept, 0
        lasting = self.lasting[-1] - self.lasting[min(place + 1, len(self.assigned))]
        return kept + self.above(place) + lasting, self.made[-1] - self.made[place + 1]

    def beside(self, place: int, backward: bool) -> tuple[int, int]:
        """Of `at`, bytes that the other layers hold beside their own tensors, and those shared that are counted once.

        The first are pinned or last to the end of the backward pass; the second are not in it.
        """
        if not backward:
            return 0, 0
        below, end = max(0, place), len(self.assigned)
        held = self.pinned[below] + self.lasting[below]
        if place < end:
            above = min(place + 1, end)
            held += self.pinned[-1] + self.lasting[-1] - self.pinned[above] - self.lasting[above]
        return held, self.shared[below]

    def places(self, segment: int, backward: bool) -> list[int]:
        """The first and the last layer of a segment's kind, and those with most for gradients of 0, 2 and 4 B each."""
        same = [i for i, kind in enumerate(self.assigned) if kind == segment - 1]
        if not backward:
            return [same[-1]]
        sizes = {i: self.at(i, True) for i in same}
        most = {max(same, key=lambda i: sizes[i][0] + width * sizes[i][1]) for width in (0, 2, 4)}
        return sorted({same[0], same[-1], *most})


def peaks(events: list[Event]) -> dict[tuple[int, bool], list[Event]]:
    """The events of each segment that no other one outweighs, with 0 to `MOST_GRADIENT` bytes a gradient element.

    The last one stays whatever its weight: all gradients are there, which FSDP's root is reduced at.
    """
    found: dict[tuple[int, bool], list[Event]] = {}
    for e in events:
        kept = found.setdefault((e.segment, e.backward), [])
        if e is not events[-1] and any(_outweighs(other, e) for other in kept):
            continue
        kept[:] = [other for other in kept if not _outweighs(e, other)]
        kept.append(e)
    return found


MOST_GRADIENT = 16
"""Bytes that a gradient's element takes at the most: under FSDP whole, flattened, accumulated and in the reduction."""


def _outweighs(a: Event, b: Event) -> bool:
    return a.live >= b.live and a.live + MOST_GRADIENT * a.gradients >= b.live + MOST_GRADIENT * b.gradients
