"""The commonest backward function: a new gradient of the input's size, beside what the operation saves for it."""

from __future__ import annotations

from .tape import tape_of
from .tensor import Node, Tensor


def made(x: Tensor, node: Node | None, slot: int = 0) -> Tensor:
    """x as the output `slot` of a backward function."""
    x.node = node
    x.slot = slot
    return x


def fresh(y: Tensor, x: Tensor, kept: object = None, logits: bool = False) -> Tensor:
    """y of x, whose backward makes one new gradient; `kept` is what is saved for it, None for an operation that saves
    nothing."""
    tape, n, e = tape_of(x), x.n, x.e

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor]:
        return (tape.new(n, e, logits),)

    saves = kept is not None
    return made(y, tape.node((x,), back, saves=int(saves), makes=0 if saves else n * e))
