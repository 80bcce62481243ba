"""The output head and the loss, where the vocabulary-wide tensors live."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .ops import to
from .tape import Tensor

if TYPE_CHECKING:
    from .tape import Tape


def cross_entropy(logits: Tensor, rows: int, sequences: int, tape: Tape) -> Tensor:
    """ForCausalLMLoss of transformers 5: `logits.float()`, then log_softmax and nll_loss in float32.

    Saved: the log-probabilities, 4 bytes x rows x vocabulary, and the shifted labels. Backward: the gradient of
    nll_loss and that of log_softmax, 4 bytes x rows x vocabulary each (loss/loss_utils.py).
    """
    wide = to(logits, 4)
    padded = tape.new(rows + sequences, 8)
    labels = tape.new(rows, 8)
    n = wide.n
    probabilities = tape.new(n, 4, logits=True)
    kept = probabilities.storage

    def log_softmax_back(_: Tensor, _kept: object = kept) -> tuple[Tensor]:
        return (tape.new(n, 4, logits=True),)

    def nll_back(_: Tensor, _kept: object = (kept, labels)) -> tuple[Tensor]:
        return (tape.new(n, 4, logits=True),)

    probabilities.node = tape.node((wide,), log_softmax_back)
    loss = tape.new(1, 4)
    loss.node = tape.node((probabilities,), nll_back)
    del padded
    return loss
