"""Cross entropy as torch runs it outside Transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tape.ops import made

if TYPE_CHECKING:
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor


def cross_entropy(logits: Tensor, tape: Tape) -> Tensor:
    """log_softmax, which saves its result, and nll_loss, both in the logits' width."""
    n, e = logits.n, logits.e
    probabilities = tape.new(n, e, logits=True)
    kept = probabilities.storage

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor]:
        return (tape.new(n, e, logits=True),)

    made(probabilities, tape.node((logits,), back))
    return made(tape.new(1, e), tape.node((probabilities,), back))
