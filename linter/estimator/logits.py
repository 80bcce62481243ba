"""The output head and the loss, where the vocabulary-wide tensors live."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import liger
from .adapters import project
from .ops import scale, to, unary

if TYPE_CHECKING:
    from .modules import Modules
    from .setting import Setting
    from .tape import Tape, Tensor


def loss_of(h: Tensor, outside: Modules, s: Setting, tape: Tape, segment: int) -> Tensor:
    """The loss of a micro batch by the job's loss kernel; `segment` begins where the loss function does."""
    kernel = s.job.loss.kernel
    module = outside.role("head") or outside.need("embedding")
    if kernel == "liger":
        tape.enter(segment)
        held = shifted_labels(s, tape)
        loss = liger.head_and_loss(h, module.weight, s.rows, tape)
        del held
        return loss
    logits = head(h, outside, s)
    tape.enter(segment)
    return cross_entropy(logits, s, tape)


def shifted_labels(s: Setting, tape: Tape) -> tuple[Tensor, Tensor]:
    """Labels padded by one and shifted, int64."""
    return tape.new(s.rows + s.batch, 8), tape.new(s.rows, 8)


def head(h: Tensor, outside: Modules, s: Setting) -> Tensor:
    """Logits of every token: lm_head, then scaling and soft cap where the model has them."""
    module = outside.role("head") or outside.need("embedding")
    logits = project(h, module, s.rows)
    mark(logits)
    if s.traits.logits_scale:
        logits = scale(logits)
    if s.config.get("final_logit_softcapping", s.traits.logits_softcap):
        logits = scale(logits)
        logits = unary(logits, save_input=False, save_output=True, logits=True)
        logits = scale(logits)
    return logits


def mark(x: Tensor) -> None:
    """Count a tensor under logits from here on."""
    if not x.storage.logits:
        x.storage.logits = True
        x.storage.tape.logits += x.storage.size


def cross_entropy(logits: Tensor, s: Setting, tape: Tape) -> Tensor:
    """ForCausalLMLoss of transformers 5: `logits.float()`, then log_softmax and nll_loss in float32.

    Saved: the log-probabilities, 4 bytes x rows x vocabulary, and the shifted labels. Backward: the gradient of
    nll_loss and that of log_softmax, 4 bytes x rows x vocabulary each (loss/loss_utils.py).
    """
    wide = to(logits, 4)
    padded = tape.new(s.rows + s.batch, 8)
    labels = tape.new(s.rows, 8)
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
