"""Tensors of the tape: sizes, storages that live as long as something refers to them, and the graph between them."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias
    from weakref import ReferenceType

    from .ledger import Ledger

    Backward = Callable[..., "tuple[Tensor | None, ...]"]
    Operand: TypeAlias = "Tensor | Parameter | None"

_leaves = count(1 << 60)
"""Leaves run before every other backward function, as torch gives AccumulateGrad the highest priority; of two that are
ready the one that was made last, so that the order is the same in every process."""


class Foreign(int):
    """The two bytes an element of the 16-bit type that autocast does not compute in.

    float16 weights under bfloat16 autocast, or the other way round: equal to no other width, so that every operand of a
    product is cast, and wider than either together with the other type's.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Foreign)

    def __ne__(self, other: object) -> bool:
        return not isinstance(other, Foreign)

    __hash__ = int.__hash__


FOREIGN = Foreign(2)


def wider(a: int, b: int) -> int:
    """The width of what an operation makes of two: bfloat16 and float16 give float32 (c10/core/ScalarType.cpp)."""
    if a == b:
        return a
    return 4 if a + b == 4 else max(a, b)


class Storage:
    """Bytes that are alive until the last reference goes; `narrow` is an 8-bit copy, as long as there is one."""

    __slots__ = ("__weakref__", "holders", "lasting", "logits", "narrow", "size", "tape")

    def __init__(self, tape: Ledger, size: int, logits: bool) -> None:
        self.tape = tape
        self.size = size
        self.logits = logits
        self.holders = 0
        self.lasting = False
        self.narrow: ReferenceType[Storage] | None = None

    def __del__(self) -> None:
        tape = self.tape
        tape.live -= self.size
        if self.logits:
            tape.logits -= self.size


class Tensor:
    """`n` elements of `e` bytes in a storage; `node` is the backward function that made it (None: no gradient).

    `view` tells a window or reshaped gradient, which is never added to in place; `heads_first` that a [b, heads, s, d]
    tensor lies in memory in that order rather than as [b, s, heads, d]; `shard` is what a gathered tensor was gathered
    from, which is what is saved in its place; `groups` the experts of a weight.
    """

    __slots__ = ("e", "groups", "heads_first", "n", "node", "shard", "slot", "storage", "view")

    def __init__(self, storage: Storage, n: int, e: int, node: Node | None = None, view: bool = False) -> None:
        self.storage = storage
        self.n = n
        self.e = e
        self.node = node
        self.slot = 0
        self.view = view
        self.heads_first = False
        self.shard: Storage | None = None
        self.groups = 1


class Node:
    """A backward function: `back(gradients of its outputs) -> gradients of its inputs`.

    What `back` closes over is what the operation saves for backward. `makes`, of a node without a function: the bytes
    of the gradient it would make, 0 where it would pass on what it gets, -1 where the operation saves something.
    """

    __slots__ = (
        "back", "buffers", "counted", "edges", "expand", "makes", "pending", "queued", "recomputed", "segment", "seq",
        "slots",
    )  # fmt: skip

    def __init__(
        self, seq: int, segment: int, edges: tuple[Edge | None, ...], back: Backward | None, slots: int
    ) -> None:
        self.seq = seq
        self.segment = segment
        self.edges = edges
        self.back = back
        self.slots = slots
        self.buffers: list[Tensor | None] | None = None
        self.pending = 0
        self.counted = False
        self.queued = False
        self.recomputed = False
        self.expand: Callable[[], Tensor] | None = None
        self.makes = 0


class Edge(NamedTuple):
    """Where a gradient goes, and the size and width it must have there."""

    node: Node
    slot: int
    n: int
    e: int


class Parameter(Node):
    """A leaf. Its own bytes are counted elsewhere (weights); its gradient leaves the tape when it is made.

    `summed`: its gradient is added to one that another layer's counts. `twin`: the same weight in the layer that has
    autocast's copy of it.
    """

    __slots__ = ("cast", "e", "groups", "n", "summed", "trainable", "twin")

    def __init__(self, n: int, e: int, trainable: bool, groups: int = 1) -> None:
        super().__init__(next(_leaves), -1, (), None, 1)
        self.groups = groups
        self.n = n
        self.e = e
        self.trainable = trainable
        self.summed = False
        self.cast: Tensor | None = None
        self.twin: Parameter | None = None


def saved_by(back: Backward) -> list[Storage]:
    """The storages that a backward function holds: those of its defaults and of what it closes over."""
    found: list[Storage] = []
    waiting: list[object] = [*(getattr(back, "__defaults__", None) or ())]
    waiting += [cell.cell_contents for cell in getattr(back, "__closure__", None) or ()]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Storage):
            found.append(item)
        elif isinstance(item, Tensor):
            found.append(item.storage)
        elif isinstance(item, (tuple, list)):
            waiting.extend(item)
    return found


def count_as_logits(x: Tensor) -> None:
    """Count a tensor under logits from here on."""
    if not x.storage.logits:
        x.storage.logits = True
        x.storage.tape.logits += x.storage.size
