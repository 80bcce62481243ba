"""Unsloth's fused head and loss (unsloth_zoo 2026.8 fused_losses/cross_entropy_loss.py).

B bytes that a chunk's float32 logits may take, T tokens, V vocabulary, h hidden size.
The loss runs each chunk of tokens forward and at once backward, in a graph of torch.compile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tape.backward import made
from ..tape.labels import labelled
from ..tape.tape import tape_of

if TYPE_CHECKING:
    from ..adapters.modules import Linear
    from ..layers.dims import LayerDims
    from ..tape.tensor import Tensor

STEP = 4
"""More than one chunk are a multiple of so many (`get_chunk_size`)."""


def chunk(rows: int, vocabulary: int, size: int | None, nearest: bool) -> int:
    """Tokens of the first chunk, ceil(T/n): n = 1 where 4 T V <= B, else ceil(4 T V / B) rounded up to STEP.

    `nearest`: n is 4 T V / B rounded to the nearest multiple of STEP, at least 1. Without B, of `size` bytes, there is
    a single chunk.
    """
    exact = 4 * rows * vocabulary
    if nearest:
        return rows if size is None else -(-rows // max(1, STEP * round(exact / (size * STEP))))
    if size is None or exact <= size:
        return rows
    count = -(-exact // (size * STEP)) * STEP
    return -(-rows // count)


@labelled(part="Unsloth head and loss")
def head_and_loss(h: Tensor, module: Linear, rows: int, dims: LayerDims) -> Tensor:
    """Saved: the gradient of h, and a trained head's, both of which backward multiplies by the loss's.

    Alive for a chunk: its logits and their gradient in autocast's width or the head's (what is float32 between them
    stays in the graph's kernels), head and hidden states in that width where theirs is another, its part of the
    gradient of h and a head's gradient before it is added up.
    """
    tape, n, e, weight = tape_of(h), h.n, h.e, module.weight
    inner = n // rows
    vocabulary = weight.n // inner
    part = chunk(rows, vocabulary, dims.loss.unsloth_bytes, dims.loss.unsloth_nearest)
    needed = h.node is not None
    gradient = tape.new(n, e)
    summed = tape.new(weight.n, weight.e) if weight.trainable else None
    width = tape.autocast or weight.e
    operands = [tape.new(size, width) for size, own in ((weight.n, weight.e), (part * inner, e)) if own != width]
    wide = [tape.new(part * vocabulary, width, logits=True) for _ in ("logits", "gradient")]
    tape.scratch(e * part * inner + (weight.n * weight.e if summed is not None else 0))
    del operands, wide
    held = gradient.storage, None if summed is None else summed.storage

    def back(_: Tensor, _kept: object = held) -> tuple[Tensor | None, Tensor | None]:
        scaled = tape.new(n, e)
        return (scaled if needed else None), (tape.new(weight.n, weight.e) if weight.trainable else None)

    loss = tape.new(1, 4)
    return made(loss, tape.node((h, weight), back))
