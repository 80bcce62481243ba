"""The evaluation loop of a training run: forward passes without gradients at their own batch size.

Nothing is saved for backward, gradients are gone (`zero_grad` sets them to None) but for those in buffers, and the
optimizer's states stay. What a pass holds is replayed as a training step is: the widest layer, autocast's copies of
trained float32 weights, which live until the forward function ends, and the logits with their loss.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..versions import older
from . import effort
from .activations import computing, layer_kinds, modelled, unread
from .layers.scored import logits_width, scored_positions
from .layers.seq2seq import setting
from .losses import returned
from .losses.logits import loss_of
from .losses.losses import WHOLE_LOGITS
from .placing import placed
from .recall import recalled
from .serving.kv_cache import layer_caches, sequence_bytes
from .sharding.one_process import TUPLES_BEFORE
from .states.parameters import base_dtype
from .states.storage import dtype_bytes
from .tape.ledger import END

if TYPE_CHECKING:
    from ..job import Job, Loss
    from ..models.model import Model
    from .instant import Instant
    from .layers.setting import Setting
    from .tape.tape import Tape

HEADLESS = frozenset({"classification", "token_classification", "question_answering", "reward"})
"""Objectives whose models score tokens or rows without the vocabulary (`models/heads.json`)."""


def instants(job: Job, model: Model) -> tuple[Instant, ...]:
    """The candidate peaks of an evaluation step; none where no evaluation is configured or no length is known.

    A pass has the rows of its objective (both answers of a pair) and the loss of training, but the whole logits where
    the trainer keeps them for its metrics, and where Liger's models make them outside of training
    (`evaluation.unfused`; liger_kernel/transformers/model/llama.py).
    Source: transformers 5.23 trainer.py `evaluation_loop`, `prediction_step`; trl 1.16 trainer/*_trainer.py
    `prediction_step`. Checked against evaluations of the memory oracle.
    """
    if not job.evaluation.micro_batch_size or not job.sequence_length:
        return ()
    return _forward(computing(evaluating(job)), model)


def evaluating(job: Job) -> Job:
    """The job of an evaluation's passes: their rows and their loss."""
    rows = job.evaluation.micro_batch_size
    changed = replace(job, micro_batch_size=rows, gradient_accumulation_steps=1, loss=_loss(job))
    if job.adapter is not None:
        changed.adapter = replace(job.adapter, dropout=0.0)
    return changed


def _loss(job: Job) -> Loss:
    """The loss of an evaluation pass: that of training, or over whole logits where somebody wants them."""
    wanted = job.evaluation.unfused or (job.evaluation.keeps_logits and job.objective not in HEADLESS)
    return replace(job.loss, kernel="torch") if wanted and job.loss.kernel not in WHOLE_LOGITS else job.loss


@recalled(16)
def _forward(job: Job, model: Model) -> tuple[Instant, ...]:
    s = setting(job, model)
    kinds, assigned = layer_kinds(s)
    tape = s.tape()
    with unread(model):
        scored(s, kinds, tape)
    effort.spend(effort.NODE * tape.nodes)
    return tuple(found.instant for found in placed(s, tape, kinds, assigned))


def scored(s: Setting, kinds: list[int], tape: Tape) -> None:
    """A forward pass with its loss, of which backward needs nothing."""
    s.still()
    tape.recording = tape.accumulated = False
    end = len(kinds) + 2
    outside = s.modules(None)
    tape.enter(0)
    ids, labels = tape.new(s.rows, 8), tape.new(s.rows, 8)
    loss = loss_of([modelled(tape, s, kinds, outside, ids, segments=True)], outside, s, tape, end)
    s.cache.clear()
    tape.clear_casts()
    if s.named and s.objective.reference:
        loss_of([modelled(tape, s, kinds, outside, ids, segments=False)], outside, s, tape, end)
        tape.clear_casts()
    tape.scratch(sum(4 * x.n for x in returned.narrow(s)))
    s.returned.clear()
    del ids, labels, loss
    tape.enter(END, backward=True)


def caches(job: Job, model: Model) -> tuple[int, int]:
    """Bytes of the keys and values that a pass keeps where it `caches`, and of their float32 copies at its end.

    `prediction_step` leaves `past_key_values` out of what it collects, but the outputs that hold them live until the
    loss is there. As tuples they are made float32 with the logits (accelerate 1.15 utils/operations.py
    `convert_to_fp32`), as a cache object they are not.
    """
    rows = job.evaluation.micro_batch_size
    if not job.evaluation.caches or not rows or not job.sequence_length:
        return 0, 0
    width = dtype_bytes(job.precision.autocast or base_dtype(job, model))
    kept = rows * sequence_bytes(layer_caches(model), scored_positions(job, model), width)
    tuples = older(job.versions.get("transformers"), TUPLES_BEFORE)
    return kept, int(kept * 4 / width) if tuples and job.precision.autocast and width < 4 else 0


def gathered_logits(job: Job, model: Model) -> tuple[int, int]:
    """Bytes of logits that earlier steps left to the last one that keeps them, and all of them once they are joined.

    Every step's logits are gathered from all ranks and joined to those before in a new tensor
    (`EvalLoopContainer.add`), until step k (`eval_accumulation_steps`) moves them to main memory. While step k runs,
    those of k - 1 steps are there, and from the third step on the last one's by themselves too; joining them takes
    k - 1 + 1 + k. Without a k two steps are counted, and how many more come is not known (uncertainty.py).
    u = ranks x rows x vocabulary a step, of 4 B under autocast (accelerate makes outputs float32) and where the model
    computes in float32 or upcasts its logits, else 2 B.
    Source: transformers 5.23 trainer.py `evaluation_loop`, trainer_pt_utils.py `nested_concat`.
    """
    evaluation = job.evaluation
    if not evaluation.keeps_logits:
        return 0, 0
    unit, steps = _step(job, model), evaluation.accumulation_steps or 2
    return (steps if steps > 2 else steps - 1) * unit, 2 * steps * unit if steps > 1 else 0


def further_logits(job: Job, model: Model) -> int:
    """Bytes of kept logits that may come on top: a script's own metric may need them, or no step moves them.

    Two steps' worth and their copy, as `gathered_logits` counts where they are known to be kept: the least, since how
    many steps an evaluation has is not known.
    """
    evaluation = job.evaluation
    if "evaluation.keeps_logits" in job.unstated:
        return 2 * (evaluation.accumulation_steps or 2) * _step(job, model)
    return 4 * _step(job, model) if evaluation.keeps_logits and not evaluation.accumulation_steps else 0


def last_logits(job: Job, model: Model) -> int:
    """Bytes of one pass's float32 logits on one rank; 0 where a fused loss makes none."""
    if job.objective in HEADLESS or _loss(job).kernel not in WHOLE_LOGITS:
        return 0
    return 4 * (job.evaluation.micro_batch_size or 0) * scored_positions(job, model) * model.shape.vocabulary


def _step(job: Job, model: Model) -> int:
    """Bytes of the logits of one step on all ranks, u of `gathered_logits`; 0 where none are kept or known."""
    evaluation = job.evaluation
    if not evaluation.micro_batch_size or not job.sequence_length:
        return 0
    if job.objective in HEADLESS:
        return 0
    width = 4.0 if job.precision.autocast is not None else logits_width(job, model)
    rows = evaluation.micro_batch_size * scored_positions(job, model) * max(1, job.data_parallel)
    return int(rows * model.shape.vocabulary * width)
