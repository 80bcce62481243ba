"""Losses that never hold all logits, or hold them without a float32 cross entropy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .ops import to
from .tensor import Parameter, Tensor

if TYPE_CHECKING:
    from .tape import Tape

TILE_ROWS, TILE_COLUMNS = 4096, 32768
"""TRL 1.16 projects tiles of so many tokens and vocabulary entries (trl/kernels/chunked_logprob.py)."""


def tiled(h: Tensor, weight: Parameter, rows: int, tape: Tape, chunk: int | None) -> Tensor:
    """TRL's fused head: tiles of logits of `chunk` tokens, made again in backward; gradients are summed in float32.

    Saved: a copy of the scored hidden states and two statistics a row. Backward: float32 gradients of h and of a
    trained head, one tile, and the gradients in their own width (trl/kernels/chunked_logprob.py).
    """
    e = tape.autocast or h.e
    copy = tape.new(h.n, h.e)
    kept = (copy.storage, tape.new(2 * rows, 8))
    statistics = tape.new(6 * rows, 4)
    vocabulary = weight.n // (h.n // rows)
    tile = min(rows, chunk or TILE_ROWS) * min(TILE_COLUMNS, vocabulary)
    tape.new(tile, e, logits=True)
    del statistics
    needed, n, width = h.node is not None, h.n, h.e

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor | None, Tensor | None]:
        wide_h = tape.new(n, 4) if needed else None
        wide_w = tape.new(weight.n, 4) if weight.trainable else None
        tape.new(tile, e, logits=True)
        gh = to(wide_h, width) if wide_h is not None else None
        gw = to(wide_w, weight.e) if wide_w is not None else None
        return gh, gw

    loss = tape.new(1, 4)
    loss.node = tape.node((h, weight), back)
    return loss


def cut(h: Tensor, weight: Parameter, rows: int, tape: Tape) -> Tensor:
    """Cut cross entropy: no logits at all; the log-sum-exp of each row is saved, gradients are made in backward.

    Operands and gradients have 16 bits (apple/ml-cross-entropy, cut_cross_entropy/cce.py).
    """
    inner, head = to(h, 2), tape.cast(weight, 2)
    kept = (inner.storage, head, tape.new(rows, 4))
    n, needed = inner.n, inner.node is not None

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor | None, Tensor | None]:
        gh = tape.new(n, 2) if needed else None
        return gh, tape.new(weight.n, 2) if weight.trainable else None

    loss = tape.new(1, 4)
    loss.node = tape.node((inner, head), back)
    return loss


def log_probabilities(logits: Tensor, tape: Tape) -> Tensor:
    """`selective_log_softmax` of preference and online trainers, row by row.

    16-bit logits: log-softmax of every row is saved; float32 logits are saved themselves and reduced by logsumexp.
    Backward: the rows' gradients, stacked again (and, in float32, those of the gathered logits).
    Source: trl/trainer/utils.py 1.16.
    """
    n, e = logits.n, logits.e
    kept = logits.storage
    if e == 2:
        kept = tape.new(n, e, logits=True).storage

    def rows_back(_: Tensor, _kept: object = kept) -> tuple[Tensor]:
        return (tape.new(n, e, logits=True),)

    def stack_back(_: Tensor) -> tuple[Tensor]:
        return (tape.new(n, e, logits=True),)

    rows = Tensor(logits.storage, n, e, tape.node((logits,), stack_back, saves=0))
    loss = tape.new(1, 4)
    loss.node = tape.node((rows,), rows_back)
    return loss
