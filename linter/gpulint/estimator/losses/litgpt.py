"""LitGPT's loss.

Source: Lightning-AI/litgpt 0.5, litgpt/utils.py `chunked_cross_entropy`, litgpt/finetune/lora.py; Lightning fabric
HalfPrecision.convert_output (logits in float32 under `bf16-true`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..adapters.linear import project
from ..tape.indexing import cat, split, total
from ..tape.ops import to
from ..tape.tensor import mark
from .pieces import cross_entropy

if TYPE_CHECKING:
    from ..adapters.modules import Linear
    from ..layers.setting import Setting
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor

CHUNK = 128
"""Tokens of every sequence that the head, and rows that the cross entropy, takes at a time."""


def loss(h: Tensor, module: Linear, s: Setting, tape: Tape, segment: int) -> Tensor:
    """Logits in chunks of the sequence, all float32, and their cross entropies; `logits` lives through backward.

    Full fine-tuning makes the logits whole and takes the cross entropy in chunks of rows.
    Forward: e + 4 bytes x tokens x vocabulary, then 8. Backward: 8, each chunk's gradient in its log-softmax's place.
    """
    chunk = CHUNK * s.batch if s.job.adapter is not None else s.rows
    sizes = [min(chunk, s.rows - start) for start in range(0, s.rows, chunk)]
    width = h.n // s.rows
    pieces = split(h, [size * width for size in sizes]) if len(sizes) > 1 else [h]
    narrow = [project(piece, module, size) for piece, size in zip(pieces, sizes, strict=True)]
    for logits in narrow:
        mark(logits)
    tape.enter(segment)
    wide = [to(logits, 4) for logits in narrow]
    del narrow
    s.outputs[:] = [logits.storage for logits in wide]
    if s.job.adapter is None:
        vocabulary = wide[0].n // s.rows
        wide = split(wide[0], [size * vocabulary for size in _rows(s.rows)])
    losses = [cross_entropy(logits, None, tape) for logits in wide]
    return total(cat(losses), 1)


def _rows(rows: int) -> list[int]:
    return [min(CHUNK, rows - start) for start in range(0, rows, CHUNK)]
