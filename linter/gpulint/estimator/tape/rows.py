"""Operations over each row of a tensor, its last dimension: means, norms, softmax, shares of a sum.

As in `ops.py`, every function is one torch operation, with what it saves and what its backward allocates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .backward import fresh, made
from .labels import labelled
from .ops import needs_gradient, to
from .tape import tape_of
from .tensor import Tensor

if TYPE_CHECKING:
    from .tensor import Operand


@labelled("mean")
def mean(x: Tensor, n: int) -> Tensor:
    """The mean over the last dimension to `n` elements; its backward divides an expanded view."""
    return fresh(tape_of(x).new(n, x.e), x)


@labelled("output and statistics")
def layer_norm(x: Tensor, weight: Operand, bias: Operand, rows: int) -> Tensor:
    """Fused layer normalisation in x's width: saves x and 8 bytes a row of statistics."""
    tape, n, e = tape_of(x), x.n, x.e
    y = tape.new(n, e)
    sizes = tuple(p.n if p is not None and needs_gradient(p) else 0 for p in (weight, bias))
    kept = (x.storage, tape.new(2 * rows, 4), weight)
    needed = x.node is not None

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor | None, ...]:
        return (tape.new(n, e) if needed else None, *(tape.new(p, e) if p else None for p in sizes))

    return made(y, tape.node((x, weight, bias), back))


def softmax(x: Tensor, e: int, fused: bool = False) -> Tensor:
    """softmax over the last dimension in `e` bytes: saves its result. `fused` reads x in its own width.

    Before torch 1.11 it saves its input too (`_softmax_backward_data`, which Transformers' pytorch_utils.py called with
    either).
    """
    wide = x if fused else to(x, e)
    tape = tape_of(x)
    y = tape.new(x.n, e)
    kept = (y.storage, wide.storage if tape.inputs_of_softmax else None)
    return fresh(y, wide, kept)


@labelled("normalised weights")
def divide(x: Tensor, rows: int) -> Tensor:
    """x /= its sum over each row: in place on a copy that was saved, with small temporaries in backward."""
    tape, n, e = tape_of(x), x.n, x.e
    sums = tape.new(rows, e)
    y = tape.new(n, e)

    def back(_: Tensor, _kept: object = (sums, x.storage)) -> tuple[Tensor]:
        temporary = [tape.new(n, e) for _ in range(3)]
        result = tape.new(n, e)
        del temporary
        return (result,)

    return made(y, tape.node((x,), back))
