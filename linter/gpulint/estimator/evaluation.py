"""The evaluation loop of a training run: forward passes without gradients at their own batch size.

Nothing is saved for backward, gradients are gone (`zero_grad` sets them to None) but for those in buffers, and the
optimizer's states stay. What a pass holds is replayed as a training step is: the widest layer, autocast's copies of
trained float32 weights, which live until the forward function ends, keys and values that the outputs hold, and the
logits with their loss.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from ..upstream.transformers import CACHE_TUPLES
from . import budget
from .activations import computing, unread
from .forward.hidden_states import hidden_states
from .forward.network import network
from .inputs.objectives import logits_width, scored_positions
from .layer_expansion import placed
from .layers.state import ReplayState
from .losses.answers import returned_narrow
from .losses.context import LossContext
from .losses.logits import loss_of
from .losses.losses import WHOLE_LOGITS
from .memoize import recalled
from .tape.labels import labelled
from .tape.ledger import END
from .tape.tape import Tape

if TYPE_CHECKING:
    from ..job.job import Job, Loss
    from ..models.model import Model
    from .forward.network import Network
    from .layers.dims import LayerDims
    from .peak_candidate import PeakCandidate
    from .tape.tensor import Tensor

PART = "inputs"

HEADLESS = frozenset({"classification", "token_classification", "question_answering", "reward"})
"""Objectives whose models score tokens or rows without the vocabulary (`models/heads.json`)."""


class Passes(NamedTuple):
    """What an evaluation's passes hold.

    instants  candidate peaks, each with the bytes of keys and values among its activations
    kept      bytes of the keys and values of all layers;  widened  of their float32 copies
    """

    instants: tuple[tuple[PeakCandidate, int], ...] = ()
    kept: int = 0
    widened: int = 0


def passes(job: Job, model: Model) -> Passes:
    """The candidate peaks of an evaluation step; none where no evaluation is configured or no length is known.

    A pass has the rows of its objective (both answers of a pair) and the loss of training, but the whole logits where
    the trainer keeps them for its metrics, and where Liger's models make them outside of training
    (`evaluation.unfused`; liger_kernel/transformers/model/llama.py).

    `prediction_step` leaves `past_key_values` out of what it collects, but the outputs that hold them live until the
    loss is there. As tuples they are made float32 with the logits (accelerate 1.15 utils/operations.py
    `convert_to_fp32`), as a cache object they are not.
    Source: transformers 5.23 trainer.py `evaluation_loop`, `prediction_step`; trl 1.16 trainer/*_trainer.py
    `prediction_step`. Checked against evaluations of the memory oracle.
    """
    if not evaluates(job):
        return Passes()
    return _forward(computing(evaluating(job)), model, job.evaluation.caches)


def evaluates(job: Job) -> bool:
    """Whether an evaluation is configured whose passes have a known size."""
    return bool(job.evaluation.micro_batch_size and job.sequence_length)


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
def _forward(job: Job, model: Model, caches: bool) -> Passes:
    whole = network(job, model)
    kinds, assigned = whole.kinds()
    tape = Tape().configured(whole.options)
    with unread(model):
        kept = scored(whole, kinds, tape, caches=caches)
    budget.spend(budget.NODE * tape.nodes)
    layers = [kept.get(kind + 1, Kept()) for kind in assigned]
    until = [0, *accumulate(layer.size for layer in layers)]
    candidates = (item.candidate for item in placed(whole, tape, kinds, assigned))
    return Passes(
        tuple((item, until[-1] if item.layer is None else until[item.layer]) for item in candidates),
        until[-1],
        sum(sum(layer.widened) for layer in layers),
    )


class Kept(NamedTuple):
    """Bytes of a layer's keys and values, and those of each float32 copy that is made of them."""

    size: int = 0
    widened: tuple[int, ...] = ()


@labelled("token ids and labels")
def scored(
    network: Network, kinds: list[int], tape: Tape, *, caches: bool = False, requests: bool = False
) -> dict[int, Kept]:
    """A forward pass with its loss, of which backward needs nothing; what `caches` keeps to its end, by segment.

    `requests`: the float32 copies of what is kept are asked for on the tape too.
    """
    network = network.without_dropout()
    dims, state, outside = network.dims, ReplayState(), network.weights.outside()
    context = LossContext(outside, dims, state, tape, len(kinds) + 2)
    tape.recording = tape.accumulated = False
    tape.keys = {} if caches else None
    tape.enter(0)
    ids, labels = tape.new(dims.rows, 8), tape.new(dims.rows, 8)
    loss = loss_of([hidden_states(tape, network, state, kinds, outside, ids, segments=True)], context)
    state.held_by_forward.clear()
    tape.clear_casts()
    if state.live_refs and dims.loss.reference:
        loss_of([hidden_states(tape, network, state, kinds, outside, ids, segments=False)], context)
        tape.clear_casts()
    kept = {segment: _kept(dims, found) for segment, found in (tape.keys or {}).items()}
    layers = [kept.get(kind + 1, Kept()) for kind in network.kinds()[1]] if requests and kept else []
    copies = [4 * x.n for x in returned_narrow(dims, state)]
    tape.scratch(*copies, *(size for layer in layers for size in layer.widened))
    state.module_outputs.clear()
    tape.keys = None
    del ids, labels, loss
    tape.enter(END, backward=True)
    return kept


def _kept(dims: LayerDims, found: list[Tensor]) -> Kept:
    """The keys and values of one layer, which may lie in one tensor."""
    size = sum({id(x.storage): x.storage.size for x in found}.values())
    tuples = dims.autocast and dims.stack.does(CACHE_TUPLES)
    return Kept(size, tuple(4 * x.n for x in found if x.e < 4) if tuples else ())


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
