"""The instants of one micro step: each distinct kind of layer is replayed once, `placed` puts the whole together."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ..job.job import CachingAllocator, Evaluation, Hardware, Optimizer
from . import budget
from .estimate import NotEstimable
from .forward.hidden_states import hidden_states
from .forward.network import network
from .frameworks.attention import remade_attention, sdpa_kernels
from .frameworks.frameworks import framework
from .frameworks.unsloth import measures_card
from .layer_expansion import Stack, placed
from .layers.state import ReplayState
from .losses.answers import logged, widen_returned
from .losses.context import LossContext
from .losses.logits import last_logits, loss_of
from .memoize import recalled
from .states.stage import pipeline
from .tape.labels import labelled
from .tape.ledger import END
from .tape.tape import Tape
from .unmodeled import derived

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..job.job import Job
    from ..models.model import Model
    from .forward.network import Network
    from .peak_candidate import PeakCandidate
    from .tape.tensor import Tensor

PART = "inputs"


def instants(job: Job, model: Model) -> tuple[PeakCandidate, ...]:
    """The candidate peaks of forward, loss and backward of one micro step on one rank; of a pipeline, on its last."""
    last = pipeline(job, model)[-1]
    return replayed(last.job, last.whole)[0]


def replayed(job: Job, model: Model) -> tuple[tuple[PeakCandidate, ...], Held]:
    """The candidate peaks, and what a finished forward pass leaves."""
    return _replayed(computing(job), model)


@recalled(16)
def _replayed(job: Job, model: Model) -> tuple[tuple[PeakCandidate, ...], Held]:
    whole = network(job, model)
    kinds, assigned = whole.kinds()
    with unread(model):
        tape = replay(whole, kinds)
    found = placed(whole, tape, kinds, assigned)
    return tuple(item.candidate for item in found), _held(tape, kinds, assigned)


@contextmanager
def unread(model: Model) -> Iterator[None]:
    """Raises NotEstimable where a replay stumbles over modules of a model whose code is not read."""
    try:
        yield
    except (AssertionError, KeyError) as error:
        if derived(model):
            raise
        raise NotEstimable(f"how {model.model_type} computes is not read, and its modules are not llama's") from error


class Held(NamedTuple):
    """Bytes that a forward pass leaves until its backward pass.

    layers  by the layers alone;  all  at the start of backward, loss and logits included
    head    trainable elements whose gradients are made before those of the layers
    pinned  bytes that a backward pass leaves until the next forward pass, with logits that the loop still names
    """

    layers: int
    all: int
    head: int
    pinned: int = 0


def _held(tape: Tape, kinds: list[int], assigned: list[int]) -> Held:
    count = len(kinds)
    mine, whole = Stack(tape, count, list(range(count))).kept[0][-1], Stack(tape, count, assigned).kept[0][-1]
    turn = next((bound.live for (_, backward), bound in tape.begins.items() if backward), 0)
    early = 0 if tape.accumulated else tape.begins.get((count, True), tape.begins[END, True]).gradients
    pinned = tape.left + sum(tape.pinned.get(kind + 1, 0) for kind in assigned)
    return Held(whole, max(whole, turn - mine + whole), early, pinned)


def computing(job: Job) -> Job:
    """A job without what its forward and backward pass do not depend on: optimizer, evaluation, allocator and GPUs.

    Over how many GPUs `device_map` spreads the layers is part of the pass, which attention Megatron or torch takes on
    them, and how Unsloth cuts its loss there.
    """
    changed = replace(job, optimizer=Optimizer(), evaluation=Evaluation(), allocator=CachingAllocator(), unstated=[])
    if not job.parallelism.device_map:
        kernels = framework(job).fuses_layers or sdpa_kernels(job) != "flash" or remade_attention(job)
        matters = kernels or measures_card(job)
        changed.hardware = Hardware(gpu=job.hardware.gpu if matters else None)
    return changed


def replay(network: Network, kinds: list[int], tape: Tape | None = None) -> Tape:
    """One forward and backward pass of a model that has one layer of each kind.

    Segments: 0 before the layers, 1.. the layers, then the final norm with the head, then the loss; behind the forward
    function a loss taken of what it returned, and the reference's pass.
    All on the tape ends with its last reference, so the collector of cycles, which would walk the whole graph again
    and again, waits.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _replay(network, kinds, (tape or Tape()).configured(network.options))
    finally:
        if collecting:
            gc.enable()


def _replay(network: Network, kinds: list[int], tape: Tape) -> Tape:
    dims, state, outside = network.dims, ReplayState(), network.weights.outside()
    context = LossContext(outside, dims, state, tape, len(kinds) + 2)
    tape.enter(0)
    ids, labels = tape.new(dims.rows, 8), tape.new(dims.rows, 8)
    kept = dims.loss.kept == "next"
    if kept:
        state.remember([last_logits(context)], dims.loss.kept)
        tape.begins_with(state.saved_for_next_step)
    loss = loss_of([hidden_states(tape, network, state, kinds, outside, ids, segments=True)], context)
    tape.clear_casts()
    widen_returned(dims, state, tape, context.segment)
    state.held_by_forward.clear()
    if dims.loss.reference or state.live_refs:
        tape.enter(len(kinds) + 4)
    if dims.loss.reference:
        _reference(network, context, kinds, ids)
    logged(context)
    state.live_refs.clear()
    del ids, labels
    tape.backward(loss, tape.new(1, 4))
    tape.enter(END, backward=True)
    tape.unpin()
    if kept:
        tape.ends_with(state.saved_for_next_step)
    tape.left = sum(storage.size for storage in state.saved_for_next_step) if kept else 0
    state.saved_for_next_step.clear()
    state.pixel_values.clear()
    budget.spend(budget.NODE * tape.nodes)
    return tape


@labelled("token ids and labels")
def _reference(network: Network, context: LossContext, kinds: list[int], ids: Tensor) -> None:
    """A forward pass without gradients, while what the policy saved is alive; of an adapted policy without its adapter.

    Unpaired answers are followed by a pass over mismatched ones, beside logits that are still named. A reference that
    wants gradients has autocast's copies of its weights until the pass ends, those of the layers that are not replayed
    too.
    """
    outside, dims, state, tape, _ = context
    context = context._replace(segment=len(kinds) + 4)
    tape.recording, tape.bare = False, dims.prompt.adapted
    for _ in range(dims.loss.reference):
        lives: list[int] = []
        h = [hidden_states(tape, network, state, kinds, outside, ids, segments=False, lives=lives)]
        others = _others(lives, network.kinds()[1]) if dims.loss.reference_requires_grad else 0
        tape.others = tape.new(others, 1)
        loss = loss_of(h, context)
        del loss
        state.held_by_forward.clear()
        tape.clear_casts()
    tape.recording, tape.bare = True, False


def _others(lives: list[int], assigned: list[int]) -> int:
    """What the layers that are not replayed leave, each as the one of its kind; `lives` after each replayed one."""
    left = [max(0, after - before) for before, after in zip([*lives[:1], *lives], lives, strict=False)]
    return sum(left[kind] for kind in assigned if kind < len(left)) - sum(left)
