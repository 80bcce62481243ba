"""LitGPT's loss.

Source: Lightning-AI/litgpt 0.5, litgpt/utils.py `chunked_cross_entropy`, litgpt/finetune/lora.py; Lightning fabric
HalfPrecision.convert_output (logits in float32 under `bf16-true`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..adapters.linear import project
from ..tape.indexing import cat, split, total
from ..tape.ops import to
from ..tape.tensor import count_as_logits
from .pieces import cross_entropy

if TYPE_CHECKING:
    from ..adapters.modules import Linear
    from ..tape.tensor import Tensor
    from .context import LossContext

CHUNK = 128
"""Tokens of every sequence that the head, and rows that the cross entropy, takes at a time."""


def loss(h: Tensor, module: Linear, context: LossContext) -> Tensor:
    """Logits in chunks of the sequence, all float32, and their cross entropies; `logits` lives through backward.

    Full fine-tuning makes the logits whole and takes the cross entropy in chunks of rows.
    Forward: e + 4 bytes x tokens x vocabulary, then 8. Backward: 8, each chunk's gradient in its log-softmax's place.
    """
    _, dims, state, tape, _ = context
    chunk = CHUNK * dims.batch if dims.prompt.adapted else dims.rows
    sizes = [min(chunk, dims.rows - start) for start in range(0, dims.rows, chunk)]
    width = h.n // dims.rows
    pieces = split(h, [size * width for size in sizes]) if len(sizes) > 1 else [h]
    narrow = [project(piece, module, size) for piece, size in zip(pieces, sizes, strict=True)]
    for logits in narrow:
        count_as_logits(logits)
    context.enter()
    wide = [to(logits, 4) for logits in narrow]
    del narrow
    state.saved_for_next_step[:] = [logits.storage for logits in wide]
    if not dims.prompt.adapted:
        vocabulary = wide[0].n // dims.rows
        wide = split(wide[0], [size * vocabulary for size in _rows(dims.rows)])
    losses = [cross_entropy(logits, None, tape) for logits in wide]
    return total(cat(losses), 1)


def _rows(rows: int) -> list[int]:
    return [min(CHUNK, rows - start) for start in range(0, rows, CHUNK)]
