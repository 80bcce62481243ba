"""Megatron Core's vocabulary-parallel loss.

The layers are those of `compiled`: what fused norms, rotary embedding and SwiGLU save makes 16 h + 6 f bytes a token
and layer, all of it divided among the ranks of tensor parallelism with sequence parallelism. The 18 h + 4 f of
megatron/training/theoretical_memory_usage.py are those of a plain MLP with two dropout masks.

Unfused attention has a softmax kernel of its own, which masks, scales and saves its output in the scores' 16 bits
(core/fusions/fused_softmax.py, Transformer Engine's UnfusedDotProductAttention), as Falcon's modelling code does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tape.backward import made
from ..tape.ops import to
from ..tape.tensor import Tensor
from .output_head import head

if TYPE_CHECKING:
    from ..adapters.modules import Linear
    from ..tape.tape import Tape
    from .context import LossContext


def loss(h: Tensor, module: Linear, context: LossContext) -> Tensor:
    """e + 4 bytes x tokens x vocabulary / t: float32 logits become their softmax, and that the gradient, in place.

    Before 0.8 (June 2024) the softmax was a tensor beside them, e + 8 bytes while both were there.

    Source: megatron/core/tensor_parallel/cross_entropy.py VocabParallelCrossEntropy, and its
    `vocab_parallel_logits = vocab_parallel_logits - logits_max` before commit 9634c0e4a3. `cross_entropy_loss_fusion`
    runs the same under torch.compile (`fused`).
    """
    dims, tape = context.dims, context.tape
    logits = head(h, module, context.outside, dims.rows, dims)
    context.enter()
    if dims.loss.compiled:
        return fused(logits, tape)
    wide = to(logits, 4)
    kept, n = wide.storage, wide.n
    if dims.loss.copies_logits:
        kept = tape.new(n, 4, logits=True).storage

    def back(_: Tensor) -> tuple[Tensor]:
        return (Tensor(kept, n, 4, view=True),)

    return made(tape.new(1, 4), tape.node((wide,), back))


def in_place(h: Tensor, module: Linear, context: LossContext) -> Tensor:
    """Transformer Engine's kernel: three numbers a token, and a gradient that takes the logits' bytes.

    Source: transformer_engine/pytorch/triton/cross_entropy.py `cross_entropy_forward`, `cross_entropy_backward`
    (megatron/core/extensions/transformer_engine.py `te_parallel_cross_entropy`).
    """
    dims, tape = context.dims, context.tape
    logits = head(h, module, context.outside, dims.rows, dims)
    context.enter()
    kept, n, e = logits.storage, logits.n, logits.e
    numbers = tape.new(3 * dims.rows, 4).storage

    def back(_: Tensor, _numbers: object = numbers) -> tuple[Tensor]:
        return (Tensor(kept, n, e, view=True),)

    return made(tape.new(1, 4), tape.node((logits,), back))


def fused(logits: Tensor, tape: Tape) -> Tensor:
    """4 bytes forward, 4 + 4 + e backward, x tokens x vocabulary / t, on top of what the head made.

    `calculate_gradients` of megatron/core/fusions/fused_cross_entropy.py updates the softmax at the labels and casts
    the product to 16 bits in one compiled graph. Inductor writes the update to a float32 buffer of its own, beside the
    saved softmax and the 16-bit gradient; of the three forward graphs it makes none (read off the code that torch 2.13
    generates for the same operations: it does not put an index_put of a view of an input in place).
    """
    n, e = logits.n, logits.e
    softmax = logits.storage if e == 4 else tape.new(n, 4, logits=True).storage

    def back(_: Tensor, _kept: object = softmax) -> tuple[Tensor]:
        updated = tape.new(n, 4, logits=True)
        gradient = tape.new(n, e, logits=True)
        del updated
        return (gradient,)

    return made(tape.new(1, 4), tape.node((logits,), back))
