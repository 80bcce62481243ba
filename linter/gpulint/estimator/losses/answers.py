"""Log-probabilities of given answers, and what preference and online trainers make of the logits beside them.

What a forward function returns under autocast, which Accelerate makes float32.

Source: accelerate/utils/operations.py `ConvertOutputsToFp32`, `convert_to_fp32`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tape.indexing import shortened, window
from ..tape.labels import labelled
from ..tape.ops import add, divided_slice, scale
from ..tape.tensor import count_as_logits
from . import losses
from .pieces import cross_entropy

if TYPE_CHECKING:
    from ..layers.dims import LayerDims
    from ..layers.state import ReplayState
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor
    from .context import LossContext


ENTROPY_ROWS = 128
"""Rows that `entropy_from_logits` takes at a time (trl/trainer/utils.py)."""


def of_answers(handed: list[Tensor], context: LossContext) -> Tensor:
    """Log-probabilities of given answers, as `Loss.log_softmax` says, of logits that are `handed` over.

    TRL's ORPO and CPO take the cross entropy of the chosen answers' logits besides, of a copy without each sequence's
    last, and both with SimPO read the log-probabilities off a slice (trl/experimental/orpo/orpo_trainer.py
    `concatenated_forward`, `get_batch_logps`). A kernel reads them off a slice whatever the objective.
    """
    dims, tape, how = context.dims, context.tape, context.dims.job.loss.log_softmax
    if dims.loss.temperature:
        return _at_temperature(handed, dims, tape)
    logits = handed.pop()
    if how == "float32" or (dims.job.rl.reference_apart and (tape.recording or dims.loss.means)):
        context.state.live_refs.append(logits.storage)
    elif dims.job.objective == "simpo":
        return _log_softmax(window(logits, logits.n), how, dims, tape)
    elif dims.job.objective in ("orpo", "cpo"):
        chosen = shortened(window(logits, logits.n // 2), logits.n // 2, dims.batch // 2)
        count_as_logits(chosen)
        likelihood = cross_entropy(chosen, None, tape)
        del chosen
        return add(likelihood, _log_softmax(window(logits, logits.n), how, dims, tape))
    return _log_softmax(window(logits, logits.n) if how == "kernel" else logits, how, dims, tape)


def _at_temperature(handed: list[Tensor], dims: LayerDims, tape: Tape) -> Tensor:
    """Log-probabilities, then entropies, of logits divided by a temperature."""
    how, logits = dims.loss.temperature, handed.pop()
    kept = logits.storage if how == "beside" else None
    in_place = how == "in_place"
    logits = window(divided_slice(logits), logits.n) if in_place else scale(window(logits, logits.n))
    found = _log_softmax(logits, dims.job.loss.log_softmax, dims, tape)
    if dims.loss.entropies:
        _entropies(logits.n, logits.e, dims, tape, laid=in_place)
    del kept
    return found


def _log_softmax(logits: Tensor, how: str, dims: LayerDims, tape: Tape) -> Tensor:
    if how == "kernel":
        return losses.kernel_log_probabilities(logits, dims.scored, tape)
    if how != "rows":
        return losses.whole_log_probabilities(logits, dims.batch, tape)
    return losses.log_probabilities(logits, dims.batch, tape)


def logged(context: LossContext) -> None:
    """What TRL's DPO and KTO make of the policy's logits for their logs, beside them and the reference's.

    Entropies; then the logits of wanted and of unwanted answers: DPO's are halves as they lie, KTO's, taken to be as
    many, are copied, and of one half at a time so are the tokens of the answers (`logits/chosen`, `logits/rejected`).
    """
    _, dims, state, tape, _ = context
    if not dims.loss.means or not state.live_refs:
        return
    words = context.head.out
    n = dims.scored * words
    e = state.live_refs[0].size // n
    if dims.loss.entropies:
        _entropies(n, e, dims, tape, laid=True)
    shifted = n - dims.batch * words
    copies = tape.new(shifted if dims.job.objective == "kto" else 0, e, logits=True)
    half = tape.new(shifted // 2, e, logits=True)
    del copies, half


def reads(dims: LayerDims) -> bool:
    """Whether the trainer reads logits that come back beside the loss, as TRL's SFT for its log."""
    return dims.loss.entropies and dims.loss.task == "cross_entropy"


def read(n: int, e: int, dims: LayerDims, tape: Tape) -> None:
    """Entropies of n such logits."""
    _entropies(n, e, dims, tape, laid=True)


def _entropies(n: int, e: int, dims: LayerDims, tape: Tape, *, laid: bool) -> None:
    """Entropies of n logits, `ENTROPY_ROWS` at a time: their log-softmax, its exponential and the product of both.

    Several sequences without their last rows are laid out anew for it.
    """
    words = n // dims.scored
    whole = tape.new(n - dims.batch * words if laid and dims.batch > 1 else 0, e, logits=True)
    part = min(ENTROPY_ROWS, dims.scored) * words
    steps = [tape.new(part, e, logits=True) for _ in range(3)]
    del whole, steps


def widen_returned(dims: LayerDims, state: ReplayState, tape: Tape, segment: int) -> None:
    """Float32 copies of what a forward function returns under autocast, made where it has ended.

    Autocast's copies of weights are gone by then, as in the backward pass, to which the instant is counted
    (accelerate/utils/operations.py `ConvertOutputsToFp32`). Cached keys are returned and copied too, those of layers
    that are not replayed as well.
    """
    if dims.autocast and state.module_outputs:
        tape.enter(segment, backward=True)
        sizes = [(x.n, x.storage.logits) for x in returned_narrow(dims, state)]
        sizes += [(state.widened_keys // 4, False)] * (dims.layers if dims.attention.caches_keys else 0)
        copies = [_in_float32(tape, *size) for size in sizes]
        if state.cached_keys:
            replayed = sum(kept.size == state.cached_keys for kept in state.held_by_forward)
            tape.beside((dims.layers - replayed) * state.cached_keys, 2 if state.widened_keys else 4)
        if sizes and reads(dims):
            state.module_outputs.clear()
            read(max(n for n, _ in sizes), 4, dims, tape)
        del copies
        tape.begin_anew(segment)
    elif state.module_outputs and reads(dims):
        read(state.module_outputs[-1].n, state.module_outputs[-1].e, dims, tape)
    state.module_outputs.clear()


def returned_narrow(dims: LayerDims, state: ReplayState) -> list[Tensor]:
    """What of it is copied: all that is not float32 yet, under autocast."""
    return [x for x in state.module_outputs if x.e < 4] if dims.autocast else []


@labelled("float32 copy", part="end of forward")
def _in_float32(tape: Tape, n: int, logits: bool) -> Tensor:
    return tape.new(n, 4, logits)
