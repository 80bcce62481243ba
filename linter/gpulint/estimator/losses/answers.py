"""Log-probabilities of given answers, and what preference and online trainers make of the logits beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..frameworks.trl import trl
from ..tape.indexing import shortened, window
from ..tape.ops import add, divided_slice, scale
from ..tape.tensor import mark
from . import losses
from .pieces import cross_entropy

if TYPE_CHECKING:
    from ..adapters.modules import Modules
    from ..layers.setting import Setting
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor

ENTROPY_ROWS = 128
"""Rows that `entropy_from_logits` takes at a time (trl/trainer/utils.py)."""


def of_answers(handed: list[Tensor], s: Setting, tape: Tape) -> Tensor:
    """Log-probabilities of given answers, as `Loss.log_softmax` says, of logits that are `handed` over.

    TRL's ORPO and CPO take the cross entropy of the chosen answers' logits besides, of a copy without each sequence's
    last, and both with SimPO read the log-probabilities off a slice (trl/experimental/orpo/orpo_trainer.py
    `concatenated_forward`, `get_batch_logps`). A kernel reads them off a slice whatever the objective.
    """
    how, release = s.job.loss.log_softmax, trl(s.job)
    if release.temperature:
        return _at_temperature(handed, s, tape)
    logits = handed.pop()
    if how == "float32" or (s.job.rl.reference_apart and (tape.recording or release.means)):
        s.named.append(logits.storage)
    elif s.job.objective == "simpo":
        return _log_softmax(window(logits, logits.n), how, s, tape)
    elif s.job.objective in ("orpo", "cpo"):
        chosen = shortened(window(logits, logits.n // 2), logits.n // 2, s.batch // 2)
        mark(chosen)
        likelihood = cross_entropy(chosen, None, tape)
        del chosen
        return add(likelihood, _log_softmax(window(logits, logits.n), how, s, tape))
    return _log_softmax(window(logits, logits.n) if how == "kernel" else logits, how, s, tape)


def _at_temperature(handed: list[Tensor], s: Setting, tape: Tape) -> Tensor:
    """Log-probabilities, then entropies, of logits divided by a temperature."""
    release, logits = trl(s.job), handed.pop()
    kept = logits.storage if release.temperature == "beside" else None
    if release.temperature == "in_place":
        logits = window(divided_slice(logits), logits.n)
    else:
        logits = scale(window(logits, logits.n))
    found = _log_softmax(logits, s.job.loss.log_softmax, s, tape)
    if release.entropies:
        _entropies(logits.n, logits.e, s, tape, laid=release.temperature == "in_place")
    del kept
    return found


def _log_softmax(logits: Tensor, how: str, s: Setting, tape: Tape) -> Tensor:
    if how == "kernel":
        return losses.kernel_log_probabilities(logits, s.scored, tape)
    if how != "rows":
        return losses.whole_log_probabilities(logits, s.batch, tape)
    return losses.log_probabilities(logits, s.batch, tape)


def logged(outside: Modules, s: Setting, tape: Tape) -> None:
    """What TRL's DPO and KTO make of the policy's logits for their logs, beside them and the reference's.

    Entropies; then the logits of wanted and of unwanted answers: DPO's are halves as they lie, KTO's, taken to be as
    many, are copied, and of one half at a time so are the tokens of the answers (`logits/chosen`, `logits/rejected`).
    """
    release = trl(s.job)
    if not release.means or not s.named:
        return
    words = (outside.role("head") or outside.need("embedding")).out
    n = s.scored * words
    e = s.named[0].size // n
    if release.entropies:
        _entropies(n, e, s, tape, laid=True)
    shifted = n - s.batch * words
    copies = tape.new(shifted if s.job.objective == "kto" else 0, e, logits=True)
    half = tape.new(shifted // 2, e, logits=True)
    del copies, half


def reads(s: Setting) -> bool:
    """Whether the trainer reads logits that come back beside the loss, as TRL's SFT for its log."""
    return trl(s.job).entropies and s.objective.loss == "cross_entropy"


def read(n: int, e: int, s: Setting, tape: Tape) -> None:
    """Entropies of n such logits."""
    _entropies(n, e, s, tape, laid=True)


def _entropies(n: int, e: int, s: Setting, tape: Tape, *, laid: bool) -> None:
    """Entropies of n logits, `ENTROPY_ROWS` at a time: their log-softmax, its exponential and the product of both.

    Several sequences without their last rows are laid out anew for it.
    """
    words = n // s.scored
    whole = tape.new(n - s.batch * words if laid and s.batch > 1 else 0, e, logits=True)
    part = min(ENTROPY_ROWS, s.scored) * words
    steps = [tape.new(part, e, logits=True) for _ in range(3)]
    del whole, steps
