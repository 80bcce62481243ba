"""The activations and logits of one instant, tensor by tensor, as arithmetic.

The bytes of an instant are those alive at an event of the replay, in which each kind of layer is run once, and what
the model's other layers keep below the one in flight (`layer_expansion.Stack`). Both are sums over tensors, so the
lines sum to the instant exactly.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from ..activations import replay
from ..forward.network import network
from ..layer_expansion import placed
from ..peak_candidate import SOURCE
from ..tape.ledger import END
from ..tape.recording import Recording
from ..terms import Term, line

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...job.job import Job
    from ...models.model import Model
    from ..forward.network import Network
    from ..layer_expansion import Placed
    from ..layers.dims import LayerDims
    from ..peak_candidate import PeakCandidate
    from ..tape.recording import Alive, Label
    from ..tape.tape import Tape

SMALL = 1000
"""Tensors under this fraction of their component are put together in one line."""

HELD = "what backward functions of the layers hold on to, though their turn is over"
SHARED = "what the layers share, counted once"
BEFORE = "what the micro step before leaves"


class Item(NamedTuple):
    """Tensors of one shape that are the same thing; `group` says of which part of the model."""

    group: str
    logits: bool
    name: str
    n: int
    e: int


Bytes = Counter[Item]


def tensors(
    job: Job,
    model: Model,
    candidate: PeakCandidate,
    run: Callable[[Network, list[int], Tape], object] = replay,
) -> list[Term]:
    """The lines of the candidate, largest first; `run` is what is recorded, a training step or an evaluation."""
    whole = network(job, model)
    kinds, assigned = whole.kinds()
    tape = Recording().configured(whole.options)
    run(whole, kinds, tape)
    at = candidate.event, candidate.layer
    found = next(
        item for item in placed(whole, tape, kinds, assigned) if (item.candidate.event, item.candidate.layer) == at
    )
    return _Lines(whole.dims, tape, found, len(kinds), assigned).terms()


def instant_terms(dims: LayerDims, alive: Alive) -> list[Term]:
    """The lines of what is alive at one instant of a pass without gradients, largest first."""
    found: Bytes = Counter()
    for label, size in alive.items():
        found[Item("", label.logits, f"{label.where}: {label.what}", label.n, label.e)] += size
    return _small_together([_term(dims, item, size) for item, size in found.items() if size])


def _term(dims: LayerDims, item: Item, size: int, layers: int = 0, where: str = "") -> Term:
    """Tensors alike of `size` bytes, in each of `layers`."""
    each = item.n * item.e
    copies, odd = divmod(abs(size), each) if each else (0, 1)
    factors = [_counted(layers, "layer")] if layers else []
    if odd:
        factors.append(f"{size:,} B")
    else:
        factors += [f"{copies} tensors"] if copies > 1 else []
        factors += [f"{item.e} B", *_shape(dims, item.n)]
    sign = "-" if size < 0 and not odd else ""
    component = "logits" if item.logits else "activations"
    return Term(component, sign + " x ".join(factors), size * max(1, layers), SOURCE, where + item.name)


def _shape(dims: LayerDims, n: int) -> list[str]:
    """n as vocabulary x width where it is the embedding's size, else as batch x length x width where it divides."""
    table = dims.vocabulary, dims.hidden
    if n == table[0] * table[1]:
        return [f"{dim:,}" for dim in table]
    for known in ((dims.batch, dims.length), (dims.rows,), (dims.length,)):
        size = 1
        for dim in known:
            size *= dim
        if n % size == 0:
            factors = [*known, n // size]
            return [f"{dim:,}" for dim in factors if dim != 1] or ["1"]
    return [f"{n:,}"]


class _Lines:
    """The tensors of one placed instant: those of the layers below, and the rest."""

    def __init__(self, dims: LayerDims, tape: Recording, found: Placed, count: int, assigned: list[int]) -> None:
        self.dims = dims
        self.tape = tape
        self.count = count
        self.found = found
        self.backward = found.event.backward or found.event.segment > count + 2
        self.below = Counter(assigned[: max(0, found.place)])
        self.here = found.here

    def terms(self) -> list[Term]:
        """Lines of the layers below, of the layer in flight, and of what is outside the layers."""
        lines: list[Term] = []
        rest = self._items(self.tape.at_events[self.found.candidate.event])
        layers: dict[tuple[Item, int], int] = {}
        for kind in range(max(0, self.here)):
            for item, size in self._kept(kind).items():
                rest[item] -= size
        for kind, count in self.below.items():
            for item, size in _netted(self._kept(kind)).items():
                layers[item, size] = layers.get((item, size), 0) + count
        rest = _taken_back(_netted(rest), layers)
        for (item, size), count in layers.items():
            lines.append(self._term(item, size, count))
        lines += [self._term(item, size) for item, size in rest.items()]
        (old, logits), held, shared = self.found.old, self.found.held, self.found.shared
        beside = [line("activations", old, BEFORE, SOURCE), line("logits", logits, BEFORE, SOURCE)]
        beside += [line("activations", held, HELD, SOURCE), line("activations", -shared, SHARED, SOURCE)]
        return _small_together([*lines, *(term for term in beside if term.size)])

    def _kept(self, kind: int) -> Bytes:
        """What one layer of a kind adds to what is alive."""
        begins = self.tape.at_begins
        if self.backward:
            end = begins[END, True]
            before, after = begins.get((kind, True), end), begins.get((kind + 1, True), end)
        else:
            before, after = begins[kind + 1, False], begins[kind + 2, False]
        found = self._items(after)
        found.subtract(self._items(before))
        return found

    def _items(self, alive: Alive) -> Bytes:
        found: Bytes = Counter()
        for label, size in alive.items():
            found[Item(self._group(label), label.logits, f"{label.where}: {label.what}", label.n, label.e)] += size
        return found

    def _group(self, label: Label) -> str:
        if 0 < label.segment <= self.count:
            return "in flight" if label.segment == self.here + 1 else "layers"
        return "outside"

    def _term(self, item: Item, size: int, layers: int = 0) -> Term:
        where = "" if layers or item.group != "in flight" or self.found.candidate.layer is None else self._flight()
        return _term(self.dims, item, size, layers, where)

    def _flight(self) -> str:
        again = self.backward and self.dims.checkpoint.mode != "none"
        return f"{'recomputed ' if again else ''}layer {self.found.candidate.layer}, "


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _netted(found: Bytes) -> Bytes:
    """Without what one layer hands on and the next one lets go: tensors of one size that cancel out."""
    kept = Counter({item: size for item, size in found.items() if size})
    for item in [item for item, size in kept.items() if size < 0]:
        others = [x for x, size in kept.items() if size > 0 and (x.n * x.e, x.logits) == (item.n * item.e, item.logits)]
        others.sort(key=lambda x: (x.group != item.group, "gradient" not in x.name, "residual" not in x.name))
        for other in others:
            moved = min(kept[other], -kept[item])
            kept[other] -= moved
            kept[item] += moved
    return Counter({item: size for item, size in kept.items() if size})


def _taken_back(rest: Bytes, layers: dict[tuple[Item, int], int]) -> Bytes:
    """The rest without what is missing from it: one layer fewer has handed that on."""
    for item, size in list(rest.items()):
        for key in [key for key in layers if key[1] == -size and layers[key] > 0]:
            layers[key] -= 1
            del rest[item]
            break
    for key in [key for key, count in layers.items() if not count]:
        del layers[key]
    return rest


def _order(term: Term) -> tuple[int, str, str]:
    return -term.size, term.label, term.formula


def _small_together(found: list[Term]) -> list[Term]:
    """Largest first, logits after activations; small tensors of a component in one line."""
    lines: list[Term] = []
    for component in ("activations", "logits"):
        own = [term for term in found if term.component == component]
        whole = sum(term.size for term in own)
        small = [term for term in own if abs(term.size) * SMALL < whole]
        lines += sorted((term for term in own if abs(term.size) * SMALL >= whole), key=_order)
        if size := sum(term.size for term in small):
            lines.append(line(component, size, _counted(len(small), "smaller tensor"), SOURCE))
    return lines
