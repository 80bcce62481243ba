"""The output head and the loss, where the vocabulary-wide tensors live."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..inputs.objectives import PAIRED, TASKS, UNPAIRED
from ..tape.backward import fresh
from ..tape.indexing import shortened, window
from ..tape.labels import labelled
from ..tape.ops import contiguous, to
from ..tape.tensor import count_as_logits
from . import liger, losses, prime_rl, unsloth
from .answers import of_answers
from .heads import task_loss
from .native import LOSSES
from .output_head import head
from .pieces import compiled, cross_entropy, heads, in_passes, of_list, of_whole

if TYPE_CHECKING:
    from ..adapters.modules import Linear
    from ..layers.dims import LayerDims
    from ..tape.tape import Tape
    from ..tape.tensor import Parameter, Tensor
    from .context import LossContext

PART = "loss"

IN_PLACE = frozenset({"liger_cross_entropy", "unsloth_cross_entropy"})
"""Kernels that stand in for torch's in the loss of transformers: Liger's, and Unsloth's as fms-acceleration puts it."""

HEADED = frozenset({"liger", "cut_cross_entropy", "unsloth"})
"""Kernels of which the head is part."""

FUSED = frozenset({"tiles", "passes", "blocks", "columns"})
"""What a chunked loss holds where the head is part of it."""


def loss_of(handed: list[Tensor], context: LossContext) -> Tensor:
    """The loss of a micro batch, of hidden states that are `handed` over.

    Log-probabilities are taken of the logits that the forward function returned, when autocast has ended and the hidden
    states are gone: a segment of their own. Under autocast those logits are copied to float32
    (accelerate/utils/operations.py `ConvertOutputsToFp32`).
    """
    dims, tape, state = context.dims, context.tape, context.state
    found = [_within(handed.pop(), context)]
    if not state.returns_logits:
        return found.pop()
    state.returns_logits = False
    tape.clear_casts()
    tape.enter(context.segment + 1)
    wide = dims.autocast or dims.job.loss.log_softmax == "float32"
    found.append(to(found[0], 4) if wide else found[0])
    del found[0]
    return of_answers(found, context)


def _within(h: Tensor, context: LossContext) -> Tensor:
    """What the forward function returns by the job's objective and loss kernel: the loss, or whole logits for it."""
    dims = context.dims
    if dims.loss.task in TASKS:
        return task_loss(h, context)
    if dims.loss.task == "score":
        _unused(h, context)
        context.enter()
        return score(h, dims, context.tape)
    rows = dims.scored
    if rows < dims.rows:
        h = contiguous(window(h, rows * dims.hidden))
    kernel = dims.loss.kernel
    own = LOSSES.get((dims.loss.own, kernel))
    if own is not None and (dims.loss.task == "cross_entropy" or _own_probabilities(dims)):
        return own(h, context.head, context)
    if kernel in HEADED or (kernel == "chunked" and dims.job.loss.logits in FUSED):
        context.enter()
        held = shifted_labels(dims, context.tape)
        loss = fused(kernel, h, context.head, rows, context)
        del held
        return loss
    if kernel == "chunked" and dims.job.loss.logits == "pieces":
        pieces = heads(h, context.head, rows, dims)
        for piece in pieces:
            count_as_logits(piece)
        context.state.remember(pieces, dims.loss.kept)
        context.enter()
        return of_list(pieces, rows, dims, context.tape)
    handed = [h]
    del h
    return _of_logits(handed, rows, context)


def _of_logits(handed: list[Tensor], rows: int, context: LossContext) -> Tensor:
    """The loss of whole logits, or those themselves where the trainer takes the loss of what the model returns.

    The hidden states are `handed` over: they go when this function does, before the logits.
    """
    h = handed.pop()
    _, dims, state, tape, _ = context
    kernel = dims.loss.kernel
    logits = head(h, context.head, context.outside, rows, dims)
    if dims.loss.upcast == "model" and dims.loss.task == "cross_entropy":
        logits = to(logits, 4)
    if kernel == "smoothed" and dims.loss.task == "cross_entropy":
        logits = to(logits, 4) if dims.autocast else logits
        return _smoothed(logits, context)
    state.remember([logits], dims.loss.kept)
    context.enter()
    if dims.loss.task == "log_probabilities":
        state.returns_logits = True
        return logits
    state.module_outputs.append(logits)
    return of_whole(logits, rows, dims, tape) if kernel == "chunked" else causal(logits, dims, tape)


def _smoothed(logits: Tensor, context: LossContext) -> Tensor:
    """The loss that the Trainer takes of what the model returns; under autocast it has let go of narrow logits."""
    context.enter()
    return losses.smoothed(logits, context.dims.batch, logits.n // context.dims.scored, context.tape)


def _own_probabilities(dims: LayerDims) -> bool:
    """Whether log-probabilities are the framework's own loss per token, negated: OpenRLHF's, and Megatron-SWIFT's of
    given answers.

    Source: ms-swift 4.6 megatron/trainers/rlhf_mixin.py `get_logps`; online objectives have one of their own.
    """
    if dims.loss.own == "openrlhf":
        return dims.loss.task == "log_probabilities"
    offline = dims.job.objective in PAIRED or dims.job.objective in UNPAIRED
    return dims.loss.own == "megatron" and offline and dims.loss.task == "log_probabilities"


@labelled("logits of the step before")
def last_logits(context: LossContext) -> Tensor:
    """The logits of the step before, which a training loop names until this step's are there."""
    dims, tape, weight = context.dims, context.tape, context.head.weight
    e = 4 if dims.loss.upcast == "model" else tape.autocast or weight.e
    return tape.new(dims.scored * (weight.n // dims.hidden), e, logits=True)


def fused(kernel: str, h: Tensor, module: Linear, rows: int, context: LossContext) -> Tensor:
    """Head and loss in one."""
    dims, tape = context.dims, context.tape
    weight: Parameter = module.weight
    if kernel == "liger":
        return liger.head_and_loss(h, weight, rows, tape, dims.arch.liger_chunk)
    if kernel == "cut_cross_entropy":
        return losses.cut(h, weight, rows, tape)
    if kernel == "unsloth":
        return unsloth.head_and_loss(h, module, rows, dims)
    if dims.job.loss.logits == "passes":
        return in_passes(h, module, rows, dims, tape)
    if dims.job.loss.logits in ("blocks", "columns"):
        return prime_rl.head(h, weight, rows, dims, tape)
    if rows == dims.rows:  # no sequence's last token is scored, and TRL hands over those that are
        rows -= dims.batch if rows > dims.batch else 0
        h = window(h, rows * (h.n // dims.rows))
    return losses.tiled(h, weight, rows, tape, dims.job.loss.chunk)


def shifted_labels(dims: LayerDims, tape: Tape) -> tuple[Tensor, Tensor]:
    """Labels padded by one and shifted, int64."""
    return tape.new(dims.rows + dims.batch, 8), tape.new(dims.rows, 8)


@labelled("labels")
def causal(logits: Tensor, dims: LayerDims, tape: Tape) -> Tensor:
    """The causal loss of transformers: float32 logits, shifted by a copy of them or by their labels, then the kernel.

    The caller keeps the logits that it hands over until the loss is there. A shifted copy's gradient is spread over
    zeros of the whole size (loss/loss_utils.py `ForCausalLMLoss`; before it, the model's own forward function). A
    Triton kernel in the place of torch's takes the logits as they are, and its gradient takes their bytes. Compiled,
    upcast and copy are part of the kernel.
    """
    if dims.loss.compiled and dims.loss.kernel not in IN_PLACE:
        return compiled(logits, dims.scored, tape)
    wide = whole = logits if dims.loss.upcast == "never" else to(logits, 4)
    if dims.loss.shifted:
        wide = shortened(whole, whole.n - dims.batch * (whole.n // dims.scored), dims.batch)
        count_as_logits(wide)
    else:
        del whole
    held = None if dims.loss.shifted else tape.new(dims.rows + dims.batch, 8)
    labels = tape.new(dims.rows, 8)
    loss = liger.cross_entropy(wide, tape) if dims.loss.kernel in IN_PLACE else cross_entropy(wide, labels, tape)
    del held
    return loss


def _unused(h: Tensor, context: LossContext) -> None:
    """Logits and their float32 copy beside a value head (trl 0.18 models/modeling_value_head.py), dropped at once."""
    dims = context.dims
    if dims.job.loss.logits_unused:
        to(head(h, context.head, context.outside, dims.rows, dims), 4)


@labelled("scores")
def score(h: Tensor, dims: LayerDims, tape: Tape) -> Tensor:
    """A reward head: one number a token, of which the last is taken."""
    return fresh(tape.new(dims.rows, h.e), h, h.storage)
