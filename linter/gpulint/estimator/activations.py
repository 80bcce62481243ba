"""The instants of one micro step: each distinct kind of layer is replayed once, `placing` puts the whole together."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple
from weakref import ref

from ..job.job import CachingAllocator, Evaluation, Hardware, Optimizer
from . import budget
from .encoders.projector import deepened
from .estimate import NotEstimable
from .frameworks.frameworks import framework
from .frameworks.release import reentrant
from .frameworks.unsloth import measures_card
from .layer_expansion import Stack, placed
from .layers.altup import joined
from .layers.attention.implementation import sdpa_kernels
from .layers.compiled import remade_attention
from .layers.decoder import Layer
from .layers.embedding_stage import stem
from .layers.norms import normed
from .layers.objectives import UNPAIRED
from .layers.seq2seq import Pair, both, setting
from .layers.sharing import slice_of
from .losses import returned
from .losses.answers import logged
from .losses.logits import last_logits, loss_of
from .memoize import recalled
from .states.reference import wants_gradients
from .states.stage import pipeline
from .states.trained_layers import first_trained
from .tape.ledger import END
from .tape.ops import gathered
from .unmodeled import derived

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..job.job import Job
    from ..models.model import Model
    from .layers.modules import Linear, Modules
    from .layers.setting import Setting
    from .peak_candidate import PeakCandidate
    from .tape.tape import Tape
    from .tape.tensor import Tensor


def instants(job: Job, model: Model) -> tuple[PeakCandidate, ...]:
    """The candidate peaks of forward, loss and backward of one micro step on one rank; of a pipeline, on its last."""
    last = pipeline(job, model)[-1]
    return replayed(last.job, last.whole)[0]


def replayed(job: Job, model: Model) -> tuple[tuple[PeakCandidate, ...], Held]:
    """The candidate peaks, and what a finished forward pass leaves."""
    return _replayed(computing(job), model)


@recalled(16)
def _replayed(job: Job, model: Model) -> tuple[tuple[PeakCandidate, ...], Held]:
    s = setting(job, model)
    kinds, assigned = layer_kinds(s)
    with unread(model):
        tape = replay(s, kinds)
    return tuple(found.candidate for found in placed(s, tape, kinds, assigned)), _held(tape, kinds, assigned)


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


def layer_kinds(s: Setting) -> tuple[list[int], list[int]]:
    """One layer of each distinct kind, and for every layer the index of its kind.

    The first layer is a kind of its own: its input is the embedding output, which outlives it. So are those up to
    the first one that trains something, whose input may want no gradient.
    """
    first = first_trained(s)
    kinds: list[int] = []
    known: dict[object, int] = {}
    assigned: list[int] = []
    for layer in range(s.layers):
        key = (layer == 0, layer > first, s.kind(layer))
        if key not in known:
            known[key] = len(kinds)
            kinds.append(layer)
        assigned.append(known[key])
    return kinds, assigned


def replay(s: Setting, kinds: list[int], tape: Tape | None = None) -> Tape:
    """One forward and backward pass of a model that has one layer of each kind.

    Segments: 0 before the layers, 1.. the layers, then the final norm with the head, then the loss; behind the forward
    function a loss taken of what it returned, and the reference's pass.
    All on the tape ends with its last reference, so the collector of cycles, which would walk the whole graph again
    and again, waits.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _replay(s, kinds, tape or s.tape())
    finally:
        if collecting:
            gc.enable()


def _replay(s: Setting, kinds: list[int], tape: Tape) -> Tape:
    outside = s.modules(None)
    tape.enter(0)
    ids, labels = tape.new(s.rows, 8), tape.new(s.rows, 8)
    if s.job.loss.kept is True:
        s.remember([last_logits(outside, s, tape)])
        tape.begins_with(s.outputs)
    loss = loss_of([modelled(tape, s, kinds, outside, ids, segments=True)], outside, s, tape, len(kinds) + 2)
    tape.clear_casts()
    returned.widened(s, tape, len(kinds) + 2)
    s.cache.clear()
    if s.objective.reference or s.named:
        tape.enter(len(kinds) + 4)
    if s.objective.reference:
        _reference(tape, s, kinds, outside, ids)
    logged(outside, s, tape)
    s.named.clear()
    del ids, labels
    tape.backward(loss, tape.new(1, 4))
    tape.enter(END, backward=True)
    tape.unpin()
    if s.job.loss.kept is True:
        tape.ends_with(s.outputs)
    tape.left = sum(storage.size for storage in s.outputs) if s.job.loss.kept is True else 0
    s.outputs.clear()
    s.pixels.clear()
    budget.spend(budget.NODE * tape.nodes)
    return tape


def modelled(
    tape: Tape,
    s: Setting,
    kinds: list[int],
    outside: Modules,
    ids: Tensor,
    *,
    segments: bool,
    lives: list[int] | None = None,
) -> Tensor:
    """The last hidden states of a forward pass; `segments`: each layer begins one; `lives`: bytes alive after each."""
    if isinstance(s, Pair):
        return both(tape, s, kinds, outside, ids, segments=segments)
    base = stem(tape, s, outside, ids)
    h = base.hidden
    collected: list[Tensor] = []
    for segment, layer in enumerate(kinds, 1):
        if segments:
            tape.enter(segment)
        block = Layer(s, layer, base, slice_of(base.extra, s))
        mode = s.checkpointing(layer) if tape.recording else "none"
        read = () if block.memory is None else (block.memory.states,)
        if block.passed:
            continue
        if mode != "none":
            again = reentrant(s.job) and mode in ("full", "offload")
            h = tape.checkpoint(block, h, mode, again, sums=bool(s.compiled) and not s.traits.norms[3], others=read)
        else:
            h = block(h)
        del block
        if layer < len(base.deep):
            h = deepened(h, base.deep[layer], s)
        if s.traits.collects:
            collected.append(h)
        if lives is not None:
            lives.append(tape.live)
    if segments:
        tape.enter(len(kinds) + 1)
    if s.order == "altup":
        h = joined(h, s)
    h = normed(h, final_norm(outside, s), s.stream, s)
    if s.shards > 1:
        h = gathered(h, h.n * s.shards)
    tape.returned = None
    shared = {ref(x.storage): x.storage.size for x in base.common()}
    del base
    tape.watch(shared.items())
    return h


def _reference(tape: Tape, s: Setting, kinds: list[int], outside: Modules, ids: Tensor) -> None:
    """A forward pass without gradients, while what the policy saved is alive; of an adapted policy without its adapter.

    Unpaired answers are followed by a pass over mismatched ones, beside logits that are still named. A reference that
    wants gradients has autocast's copies of its weights until the pass ends, those of the layers that are not replayed
    too.
    """
    tape.recording, tape.bare = False, s.job.adapter is not None
    for _ in range(2 if s.job.loss.log_softmax == "float32" and s.job.objective in UNPAIRED else 1):
        lives: list[int] = []
        h = [modelled(tape, s, kinds, outside, ids, segments=False, lives=lives)]
        tape.others = tape.new(_others(lives, layer_kinds(s)[1]) if wants_gradients(s.job) else 0, 1)
        loss = loss_of(h, outside, s, tape, len(kinds) + 4)
        del loss
        s.cache.clear()
        tape.clear_casts()
    tape.recording, tape.bare = True, False


def _others(lives: list[int], assigned: list[int]) -> int:
    """What the layers that are not replayed leave, each as the one of its kind; `lives` after each replayed one."""
    left = [max(0, after - before) for before, after in zip([*lives[:1], *lives], lives, strict=False)]
    return sum(left[kind] for kind in assigned if kind < len(left)) - sum(left)


def final_norm(outside: Modules, s: Setting) -> Linear | None:
    """The norm between the layers and the head, where there is one."""
    if s.traits.final != "last":
        return outside.leaf(s.traits.final) if s.traits.final else None
    found = outside.norms(s.hidden)
    return found[-1] if found else None
