"""The loss that aligns frames of sound with a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..adapters.linear import project
from ..tape.backward import made
from ..tape.ops import dropout
from ..tape.rows import softmax
from ..tape.tensor import count_as_logits

if TYPE_CHECKING:
    from ..adapters.modules import Linear
    from ..tape.tensor import Tensor
    from .context import LossContext


def ctc(h: Tensor, head: Linear, context: LossContext) -> Tensor:
    """Dropout, the head, float32 log-probabilities; the loss keeps log alpha, b T (2 U + 1) float32 for U labels.

    A mask of ones, 8 bytes a sample, stands in where the processor makes none, and lives until the loss is there.
    Backward makes log beta of the same size for a moment (aten native/cuda/LossCTC.cu).
    """
    _, dims, state, tape, _ = context
    dropped = dropout(h, dims.dropout.head)
    logits = project(dropped, head, dims.rows)
    count_as_logits(logits)
    state.remember([logits], dims.loss.kept)
    state.module_outputs.append(logits)
    context.enter()
    mask = tape.new(dims.batch * dims.sound.samples, 8)
    probabilities = softmax(logits, 4)
    states = dims.batch * dims.length * (2 * (dims.job.target_length or 0) + 1)
    alpha = tape.new(states, 4)
    n = probabilities.n

    def back(_: Tensor, _kept: object = (alpha, probabilities.storage)) -> tuple[Tensor]:
        tape.scratch(4 * states)
        return (tape.new(n, 4),)

    del mask, dropped, h
    return made(tape.new(1, 4), tape.node((probabilities,), back))
