"""The instants of one micro step, from one replay of each distinct kind of layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .adapters import project
from .attention import attend
from .instant import Instant
from .logits import cross_entropy
from .mlp import gated
from .norms import rms
from .ops import add, embedding
from .setting import Linear, Setting
from .tape import END, Tape, Tensor

if TYPE_CHECKING:
    from ..job import Job
    from ..models.model import Model
    from .tape import Event


def instants(job: Job, model: Model) -> list[Instant]:
    """The candidate peaks of forward, loss and backward of one micro step on one rank."""
    return _compose(*_replay(Setting(job, model)))


class _Layer:
    def __init__(self, s: Setting, layer: int, cos: Tensor, sin: Tensor, positions: Tensor) -> None:
        self.s, self.cos, self.sin, self.positions = s, cos, sin, positions
        self.modules = s.modules(layer)

    def __call__(self, x: Tensor) -> Tensor:
        s, modules = self.s, self.modules
        residual = x
        h = rms(x, modules["input_layernorm"].weight, s.rows)
        h = attend(h, modules, s, self.cos, self.sin)
        h = add(residual, h)
        residual = h
        h = rms(h, modules["post_attention_layernorm"].weight, s.rows)
        h = gated(h, modules, s)
        h = add(residual, h)
        return h


def _model(tape: Tape, s: Setting, kinds: list[int], outside: dict[str, Linear], ids: Tensor) -> Tensor:
    table = next(m for name, m in outside.items() if "embed" in name)
    embeds = embedding(tape, s.rows, table.weight, s.hidden, ids)
    cos, sin = tape.new(s.length * s.head_dim, embeds.e), tape.new(s.length * s.head_dim, embeds.e)
    positions = tape.new(s.length, 8)
    h = embeds
    for segment, layer in enumerate(kinds, 1):
        tape.enter(segment)
        block = _Layer(s, layer, cos, sin, positions)
        if s.job.activation_checkpointing == "full":
            h = tape.checkpoint(block, h)
        else:
            h = block(h)
    tape.enter(len(kinds) + 1)
    h = rms(h, outside["model.norm"].weight, s.rows)
    del positions, embeds
    return h


def _replay(s: Setting) -> tuple[Setting, Tape, list[int], list[int]]:
    kinds = [0, 1] if s.layers > 1 else [0]
    assigned = [0] + [1] * (s.layers - 1)
    tape = s.tape()
    outside = s.modules(None)
    tape.enter(0)
    ids, labels = tape.new(s.rows, 8), tape.new(s.rows, 8)
    h = _model(tape, s, kinds, outside, ids)
    head = outside.get("lm_head") or next(m for name, m in outside.items() if "embed" in name)
    logits = project(h, head, s.rows)
    logits.storage.logits = True
    tape.logits += logits.storage.size
    tape.enter(len(kinds) + 2)
    loss = cross_entropy(logits, s.rows, s.batch, tape)
    del h, logits, ids, labels
    tape.clear_casts()
    tape.backward(loss, tape.new(1, 4))
    tape.enter(END, backward=True)
    return s, tape, kinds, assigned


def _compose(s: Setting, tape: Tape, kinds: list[int], assigned: list[int]) -> list[Instant]:
    """Every event of the replay, at the layers of the whole model where it is largest."""
    count = len(kinds)
    replayed, whole = Stack(tape, count, list(range(count))), Stack(tape, count, assigned)
    found: list[Instant] = []
    for (segment, backward), events in peaks(tape.events).items():
        phase = "backward" if backward else "loss" if segment == count + 2 else "forward"
        here = max(-1, min(segment - 1, count))
        places = whole.places(segment, backward) if 0 <= here < count else [-1 if here < 0 else len(assigned)]
        for place in places:
            size, made = whole.at(place, backward)
            there, done = replayed.at(here, backward)
            for e in events:
                gradients = s.trainable if tape.accumulated else e.gradients + made - done
                layer = place if 0 <= place < len(assigned) else None
                found.append(Instant(phase, e.live - e.logits + size - there, e.logits, gradients, layer))
    return found


class Stack:
    """What a stack of layers keeps alive below each place, and the gradients of the layers above it."""

    def __init__(self, tape: Tape, kinds: int, assigned: list[int]) -> None:
        begins, end = tape.begins, tape.begins[END, True]
        starts = [begins.get((k, True), end) for k in range(kinds + 2)]
        self.assigned = assigned
        self.kept = [[0], [0]]
        self.made = [0]
        for kind in assigned:
            forward = begins[kind + 2, False].live - begins[kind + 1, False].live
            self.kept[0].append(self.kept[0][-1] + forward)
            self.kept[1].append(self.kept[1][-1] + starts[kind + 1].live - starts[kind].live)
            self.made.append(self.made[-1] + starts[kind].gradients - starts[kind + 1].gradients)

    def at(self, place: int, backward: bool) -> tuple[int, int]:
        """Bytes kept below layer `place`, and gradients made above it; -1 is before the stack, its length behind."""
        kept = self.kept[backward][max(0, place)]
        if not backward or place >= len(self.assigned):
            return kept, 0
        return kept, self.made[-1] - self.made[place + 1]

    def places(self, segment: int, backward: bool) -> list[int]:
        """The layers of a segment's kind that have most, for gradients of 0, 2 and 4 bytes an element."""
        same = [i for i, kind in enumerate(self.assigned) if kind == segment - 1]
        if not backward:
            return [same[-1]]
        sizes = {i: self.at(i, True) for i in same}
        return list({max(same, key=lambda i: sizes[i][0] + width * sizes[i][1]) for width in (0, 2, 4)})


def peaks(events: list[Event]) -> dict[tuple[int, bool], list[Event]]:
    """The events of each segment that no other one outweighs, with gradients of 0 to 4 bytes an element."""
    found: dict[tuple[int, bool], list[Event]] = {}
    for e in events:
        kept = found.setdefault((e.segment, e.backward), [])
        if any(_outweighs(other, e) for other in kept):
            continue
        kept[:] = [other for other in kept if not _outweighs(e, other)]
        kept.append(e)
    return found


def _outweighs(a: Event, b: Event) -> bool:
    return a.live >= b.live and a.live + 4 * a.gradients >= b.live + 4 * b.gradients
