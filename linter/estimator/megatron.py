"""Megatron Core's vocabulary-parallel loss.

The layers are those of `compiled`: what fused norms, rotary embedding and SwiGLU save makes 16 h + 6 f bytes a token
and layer, all of it divided among the ranks of tensor parallelism with sequence parallelism. The 18 h + 4 f of
megatron/training/theoretical_memory_usage.py are those of a plain MLP with two dropout masks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .logits import head
from .ops import made, to
from .tensor import Tensor

if TYPE_CHECKING:
    from .modules import Linear
    from .setting import Setting
    from .tape import Tape


def loss(h: Tensor, module: Linear, s: Setting, tape: Tape, segment: int) -> Tensor:
    """e + 4 bytes x tokens x vocabulary / t: float32 logits become their softmax, and that the gradient, in place.

    Source: megatron/core/tensor_parallel/cross_entropy.py VocabParallelCrossEntropy.
    """
    logits = head(h, module, s.modules(None), s.rows, s)
    tape.enter(segment)
    wide = to(logits, 4)
    kept, n = wide.storage, wide.n

    def back(_: Tensor) -> tuple[Tensor]:
        return (Tensor(kept, n, 4, view=True),)

    return made(tape.new(1, 4), tape.node((wide,), back))
