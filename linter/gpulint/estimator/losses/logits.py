"""The output head and the loss, where the vocabulary-wide tensors live."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..inputs.objectives import PAIRED, TASKS, UNPAIRED
from ..tape.indexing import shortened, window
from ..tape.labels import labelled
from ..tape.ops import contiguous, to
from ..tape.tensor import mark
from . import liger, losses, prime_rl, unsloth
from .answers import of_answers
from .heads import task_loss
from .native import LOSSES
from .output_head import head
from .pieces import compiled, cross_entropy, heads, in_passes, of_list, of_whole

if TYPE_CHECKING:
    from ..adapters.modules import Linear, Modules
    from ..layers.setting import Setting
    from ..tape.tape import Tape
    from ..tape.tensor import Parameter, Tensor

PART = "loss"

IN_PLACE = frozenset({"liger_cross_entropy", "unsloth_cross_entropy"})
"""Kernels that stand in for torch's in the loss of transformers: Liger's, and Unsloth's as fms-acceleration puts it."""

HEADED = frozenset({"liger", "cut_cross_entropy", "unsloth"})
"""Kernels of which the head is part."""

FUSED = frozenset({"tiles", "passes", "blocks", "columns"})
"""What a chunked loss holds where the head is part of it."""


def loss_of(handed: list[Tensor], outside: Modules, s: Setting, tape: Tape, segment: int) -> Tensor:
    """The loss of a micro batch, of hidden states that are `handed` over; `segment` begins where its function does.

    Log-probabilities are taken of the logits that the forward function returned, when autocast has ended and the hidden
    states are gone: a segment of their own. Under autocast those logits are copied to float32
    (accelerate/utils/operations.py `ConvertOutputsToFp32`).
    """
    found = [_within(handed.pop(), outside, s, tape, segment)]
    if not s.whole:
        return found.pop()
    s.whole = False
    tape.clear_casts()
    tape.enter(segment + 1)
    wide = s.autocast or s.job.loss.log_softmax == "float32"
    found.append(to(found[0], 4) if wide else found[0])
    del found[0]
    return of_answers(found, s, tape)


def _within(h: Tensor, outside: Modules, s: Setting, tape: Tape, segment: int) -> Tensor:
    """What the forward function returns by the job's objective and loss kernel: the loss, or `whole` logits for it.

    A framework's own loss takes float32 logits; a job that says they never are has another.
    """
    if s.objective.loss in TASKS:
        return task_loss(h, outside, s, tape, segment)
    if s.objective.loss == "score":
        _unused(h, outside, s)
        tape.enter(segment)
        return score(h, s, tape)
    rows = s.scored
    if rows < s.rows:
        h = contiguous(window(h, rows * s.hidden))
    module = outside.role("head") or outside.need("embedding")
    kernel = s.loss
    own = None if s.job.loss.upcast == "never" else LOSSES.get((s.framework.loss, kernel))
    if own is not None and (s.objective.loss == "cross_entropy" or _own_probabilities(s)):
        return own(h, module, s, tape, segment)
    if kernel in HEADED or (kernel == "chunked" and s.job.loss.logits in FUSED):
        tape.enter(segment)
        held = shifted_labels(s, tape)
        loss = fused(kernel, h, module, rows, s, tape)
        del held
        return loss
    if kernel == "chunked" and s.job.loss.logits == "pieces":
        pieces = heads(h, module, rows, s)
        for piece in pieces:
            mark(piece)
        s.remember(pieces)
        tape.enter(segment)
        return of_list(pieces, rows, s, tape)
    logits = head(h, module, outside, rows, s)
    if s.upcast == "model" and s.objective.loss == "cross_entropy":
        logits = to(logits, 4)
    if kernel == "smoothed" and s.objective.loss == "cross_entropy":
        logits = to(logits, 4) if s.autocast else logits
        return _smoothed(logits, s, tape, segment)
    s.remember([logits])
    tape.enter(segment)
    if s.objective.loss == "log_probabilities":
        s.whole = True
        return logits
    s.returned.append(logits)
    return of_whole(logits, rows, s, tape) if kernel == "chunked" else causal(logits, s, tape)


def _smoothed(logits: Tensor, s: Setting, tape: Tape, segment: int) -> Tensor:
    """The loss that the Trainer takes of what the model returns; under autocast it has let go of narrow logits."""
    tape.enter(segment)
    return losses.smoothed(logits, s.batch, logits.n // s.scored, tape)


def _own_probabilities(s: Setting) -> bool:
    """Whether log-probabilities are the framework's own loss per token, negated: OpenRLHF's, and Megatron-SWIFT's of
    given answers.

    Source: ms-swift 4.6 megatron/trainers/rlhf_mixin.py `get_logps`; online objectives have one of their own.
    """
    if s.framework.loss == "openrlhf":
        return s.objective.loss == "log_probabilities"
    offline = s.job.objective in PAIRED or s.job.objective in UNPAIRED
    return s.framework.loss == "megatron" and offline and s.objective.loss == "log_probabilities"


@labelled("logits of the step before")
def last_logits(outside: Modules, s: Setting, tape: Tape) -> Tensor:
    """The logits of the step before, which a training loop names until this step's are there."""
    weight = (outside.role("head") or outside.need("embedding")).weight
    e = 4 if s.upcast == "model" else tape.autocast or weight.e
    return tape.new(s.scored * (weight.n // s.hidden), e, logits=True)


def fused(kernel: str, h: Tensor, module: Linear, rows: int, s: Setting, tape: Tape) -> Tensor:
    """Head and loss in one."""
    weight: Parameter = module.weight
    if kernel == "liger":
        return liger.head_and_loss(h, weight, rows, tape, s.traits.liger_chunk)
    if kernel == "cut_cross_entropy":
        return losses.cut(h, weight, rows, tape)
    if kernel == "unsloth":
        return unsloth.head_and_loss(h, module, rows, tape, s.job)
    if s.job.loss.logits == "passes":
        return in_passes(h, module, rows, s, tape)
    if s.job.loss.logits in ("blocks", "columns"):
        return prime_rl.head(h, weight, rows, s, tape)
    if rows == s.rows:  # no sequence's last token is scored, and TRL hands over those that are
        rows -= s.batch if rows > s.batch else 0
        h = window(h, rows * (h.n // s.rows))
    return losses.tiled(h, weight, rows, tape, s.job.loss.chunk)


def shifted_labels(s: Setting, tape: Tape) -> tuple[Tensor, Tensor]:
    """Labels padded by one and shifted, int64."""
    return tape.new(s.rows + s.batch, 8), tape.new(s.rows, 8)


@labelled("labels")
def causal(logits: Tensor, s: Setting, tape: Tape) -> Tensor:
    """The causal loss of transformers: float32 logits, shifted by a copy of them or by their labels, then the kernel.

    The caller keeps the logits that it hands over until the loss is there. A shifted copy's gradient is spread over
    zeros of the whole size (loss/loss_utils.py `ForCausalLMLoss`; before it, the model's own forward function). A
    Triton kernel in the place of torch's takes the logits as they are, and its gradient takes their bytes. Compiled,
    upcast and copy are part of the kernel.
    """
    if s.compiled_loss and s.loss not in IN_PLACE:
        return compiled(logits, s.scored, tape)
    wide = whole = logits if s.upcast == "never" else to(logits, 4)
    if s.release.shifted:
        wide = shortened(whole, whole.n - s.batch * (whole.n // s.scored), s.batch)
        mark(wide)
    else:
        del whole
    held = None if s.release.shifted else tape.new(s.rows + s.batch, 8)
    labels = tape.new(s.rows, 8)
    loss = liger.cross_entropy(wide, tape) if s.loss in IN_PLACE else cross_entropy(wide, labels, tape)
    del held
    return loss


def _unused(h: Tensor, outside: Modules, s: Setting) -> None:
    """Logits and their float32 copy beside a value head (trl 0.18 models/modeling_value_head.py), dropped at once."""
    if s.job.loss.idle_logits:
        to(head(h, outside.role("head") or outside.need("embedding"), outside, s.rows, s), 4)


@labelled("scores")
def score(h: Tensor, s: Setting, tape: Tape) -> Tensor:
    """A reward head: one number a token, of which the last is taken."""
    n, e = h.n, h.e
    values = tape.new(s.rows, e)

    def back(_: Tensor, _kept: object = h.storage) -> tuple[Tensor]:
        return (tape.new(n, e),)

    values.node = tape.node((h,), back)
    return values
