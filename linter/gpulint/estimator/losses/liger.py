"""Liger's losses (liger-kernel 0.8.5): cross entropy in place, and head and loss in one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tape.backward import made
from ..tape.labels import labelled
from ..tape.tensor import Parameter, Tensor

if TYPE_CHECKING:
    from ..tape.tape import Tape


@labelled("log-probabilities and labels")
def cross_entropy(logits: Tensor, tape: Tape) -> Tensor:
    """Cross entropy in place: the gradient takes the bytes of the logits (ops/cross_entropy.py)."""
    kept, n, e = logits.storage, logits.n, logits.e

    def back(_: Tensor) -> tuple[Tensor]:
        return (Tensor(kept, n, e, view=True),)

    loss = tape.new(1, 4)
    return made(loss, tape.node((logits,), back))


@labelled(part="Liger head and loss")
def head_and_loss(h: Tensor, weight: Parameter, rows: int, tape: Tape, budget: int) -> Tensor:
    """Fused linear cross entropy: the gradients of h and of the head are made in the forward pass, chunk by chunk.

    A chunk has the power of two at or above rows / ceil(V / (budget h)) rows. Saved: grad_input rows x h, and
    grad_weight V x h where the head is trained and h wants a gradient, so not in an evaluation. Autocast casts the
    head, the chunk of h and the sum's operand anew for every chunk. In float32 alone a chunk's V x h are a tensor of
    their own before they are added, and so they are, in float32 too, where a head of 16 bits has not autocast's type
    (ops/fused_linear_cross_entropy.py).
    """
    width = h.n // rows
    vocabulary = weight.n // width
    chunk = min(rows, 1 << (-(-rows // -(-vocabulary // (budget * width))) - 1).bit_length())
    gradient = tape.new(h.n, h.e)
    gradient_weight = tape.new(weight.n, weight.e) if weight.trainable and tape.recording else None
    losses = tape.new(rows, 4)
    mask = tape.new(rows, 1)
    e = tape.autocast or h.e
    if tape.autocast and (h.e != e or weight.e != e):
        _cast_chunks(tape, weight, chunk, width, e, rows > chunk)
        if gradient_weight is not None and weight.e < 4 and weight.e != e:
            logits = tape.new(chunk * vocabulary, e, logits=True)
            product = tape.new(weight.n, e)
            tape.scratch(4 * weight.n)
            del logits, product
    else:
        logits = tape.new(chunk * vocabulary, e, logits=True)
        if gradient_weight is not None and e == 4:
            tape.new(weight.n, 4)
        del logits

    def back(_: Tensor) -> tuple[Tensor, Tensor | None]:
        return Tensor(gradient.storage, gradient.n, gradient.e, view=True), gradient_weight

    loss = tape.new(1, 4)
    loss.node = tape.node((h, weight), back)
    del losses, mask
    return loss


def _cast_chunks(tape: Tape, weight: Parameter, chunk: int, width: int, e: int, again: bool) -> None:
    """One chunk under autocast, and a second one where there are more.

    The transposed head is cast for every chunk; the head itself once, and autocast keeps that copy if it is trained.
    """
    vocabulary = weight.n // width
    copies = [tape.new(weight.n, e), tape.new(chunk * width, e)]
    logits = tape.new(chunk * vocabulary, e, logits=True)
    copies.clear()
    kept = tape.cast(weight, e)
    copies = [tape.new(chunk * width, e)]
    del kept
    copies.clear()
    del logits
    if again:
        copies = [tape.new(weight.n, e), tape.new(chunk * width, e)]
        tape.new(chunk * vocabulary, e, logits=True)
