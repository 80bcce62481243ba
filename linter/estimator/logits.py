"""The output head and the loss, where the vocabulary-wide tensors live."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import liger, losses
from .adapters import project
from .indexing import window
from .ops import contiguous, scale, to, unary

if TYPE_CHECKING:
    from .modules import Linear, Modules
    from .setting import Setting
    from .tape import Tape
    from .tensor import Parameter, Tensor


def loss_of(h: Tensor, outside: Modules, s: Setting, tape: Tape, segment: int) -> Tensor:
    """The loss of a micro batch by the job's objective and loss kernel; `segment` begins where its function does."""
    if s.objective.loss == "score":
        tape.enter(segment)
        return score(h, s, tape)
    rows = s.scored
    if rows < s.rows:
        h = contiguous(window(h, rows * s.hidden))
    module = outside.role("head") or outside.need("embedding")
    kernel = s.loss
    if kernel in ("liger", "cut_cross_entropy") or (kernel == "chunked" and not s.whole_logits):
        tape.enter(segment)
        held = shifted_labels(s, tape)
        loss = fused(kernel, h, module, rows, s, tape)
        del held
        return loss
    logits = head(h, module, outside, rows, s)
    tape.enter(segment)
    if s.objective.loss == "log_probabilities":
        return losses.log_probabilities(to(logits, 4) if s.autocast else logits, tape)
    if kernel == "chunked":
        return losses.in_pieces(logits, rows, tape, s.job.loss.chunk or rows)
    if kernel == "liger_cross_entropy":
        return liger.cross_entropy(to(logits, 4), tape)
    return cross_entropy(logits, s, tape)


def fused(kernel: str, h: Tensor, module: Linear, rows: int, s: Setting, tape: Tape) -> Tensor:
    """Head and loss in one."""
    weight: Parameter = module.weight
    if kernel == "liger":
        return liger.head_and_loss(h, weight, rows, tape, s.traits.liger_chunk)
    if kernel == "cut_cross_entropy":
        return losses.cut(h, weight, rows, tape)
    return losses.tiled(h, weight, rows, tape, s.job.loss.chunk)


def shifted_labels(s: Setting, tape: Tape) -> tuple[Tensor, Tensor]:
    """Labels padded by one and shifted, int64."""
    return tape.new(s.rows + s.batch, 8), tape.new(s.rows, 8)


def head(h: Tensor, module: Linear, outside: Modules, rows: int, s: Setting) -> Tensor:
    """Logits of every scored token: lm_head, then scaling and soft cap where the model has them."""
    projection = outside.leaf("project_out")
    if projection is not None:
        h = project(h, projection, rows)
    if s.residual_float:
        h = to(h, module.weight.e)
    logits = project(h, module, rows)
    mark(logits)
    if s.traits.logits_float:
        logits = to(logits, 4)
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
    """ForCausalLMLoss of transformers: float32 logits, then log_softmax and nll_loss.

    Saved: the log-probabilities, 4 bytes x rows x vocabulary, and the shifted labels. Backward: the gradient of
    nll_loss and that of log_softmax, 4 bytes x rows x vocabulary each (loss/loss_utils.py). Before 4.49 the float32
    logits are copied to shift them, and the slice's gradient is spread over zeros of the whole size.
    """
    shifts = s.release.loss != "padded"
    wide = to(logits, 4)
    if shifts:
        source = window(wide, wide.n)
        wide = contiguous(source)
        mark(wide)
    held = None if shifts else tape.new(s.rows + s.batch, 8)
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
    del held
    return loss


def score(h: Tensor, s: Setting, tape: Tape) -> Tensor:
    """A reward head: one number a token, of which the last is taken."""
    n, e = h.n, h.e
    values = tape.new(s.rows, e)

    def back(_: Tensor, _kept: object = h.storage) -> tuple[Tensor]:
        return (tape.new(n, e),)

    values.node = tape.node((h,), back)
    return values
