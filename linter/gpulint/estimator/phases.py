"""The phases of a training run on one rank: what always stands there, and what an instant or a step adds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .estimate import Phase
from .serving.kv_cache import layer_caches
from .sharding.one_process import evaluated, replicated
from .states.parameters import base_dtype, gathered_dtype
from .states.stage import kept_outputs
from .states.storage import dtype_bytes
from .terms import Product, Term, line, terms, total

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..job.job import Job
    from ..models.model import Model
    from .activations import Held
    from .peak_candidate import PeakCandidate
    from .serving.layer_cache import LayerCache
    from .sharding.sharded_state import ShardedState
    from .states.stage import Stage


MICRO_STEP = ("forward", "loss", "backward")
STEP = (*MICRO_STEP, "optimizer_step")
"""The phases that alternate in every step; an evaluation runs on blocks that training does not ask for meanwhile."""

EVALUATION, CACHED = "estimator/evaluation.py: gathered_logits", "estimator/evaluation.py: passes"


def loading(state: ShardedState, fixed: Iterable[Term], later: int) -> Phase:
    """The weights are in but `later` bytes, no step was taken: no states and no buffers, but what loading needs."""
    found = [term for term in fixed if term.component in ("weights", "adapter")]
    unmade = [line("weights", -later, "weights that are made later")] if later else []
    return Phase("load", (*found, *unmade, *state.loading))


def micro_phases(state: ShardedState, fixed: Sequence[Term], step: MicroStep) -> list[Phase]:
    """The instant with most memory of each phase of a micro step."""
    best: dict[str, tuple[int, PeakCandidate, list[Term]]] = {}
    for candidate in step.candidates:
        moving = _moving(state, step, candidate)
        size = total(moving)
        if candidate.phase not in best or size > best[candidate.phase][0]:
            best[candidate.phase] = size, candidate, moving
    return [_phase(state, fixed, candidate, moving) for _, candidate, moving in best.values()]


def _moving(state: ShardedState, step: MicroStep, candidate: PeakCandidate) -> list[Term]:
    """What comes to what stands at an instant, with what other micro batches in flight keep."""
    others = step.in_flight if candidate.event >= 0 else ()
    return [*candidate.terms, *others, *state.terms_at(candidate)]


def _phase(state: ShardedState, fixed: Sequence[Term], candidate: PeakCandidate, moving: Sequence[Term]) -> Phase:
    return Phase(candidate.phase, (*state.step_buffers, *fixed, *moving), candidate)


def marks(phases: Sequence[Phase], state: ShardedState, fixed: Sequence[Term], step: MicroStep) -> list[Phase]:
    """The phases, and the instants with most of each component, which need not be the peak of their phase.

    All before the last reduction of a pass, whose copies find their place among what the computation freed.
    """
    found = [candidate for candidate in step.candidates if not state.ending(candidate)]
    if not found:
        return list(phases)
    most = (
        max(found, key=state.activation_bytes),
        max(found, key=lambda candidate: candidate.logits),
        max(found, key=state.buffer_bytes),
        max(found, key=lambda candidate: state.gradient_bytes(candidate.gradient_elements)),
    )
    step = step._replace(candidates=found)
    phases = [phase for phase in phases if phase.name not in MICRO_STEP] + micro_phases(state, fixed, step)
    return [*phases, *(_phase(state, fixed, item, _moving(state, step, item)) for item in most)]


def optimizer_step(state: ShardedState, fixed: Sequence[Term], left: int) -> Phase:
    """All gradients, the states and what the step itself makes, with `left` bytes of activations not gone yet."""
    what = "what a backward pass leaves until the next forward pass"
    stays = [line("activations", left, what, "estimator/activations.py")] if left else []
    return Phase("optimizer_step", (*state.step_buffers, *fixed, *state.in_step, *stays))


def evaluation(stage: Stage, state: ShardedState, fixed: Sequence[Term]) -> list[Phase]:
    """The instant of an evaluation step with most memory; none where none is configured.

    It finds the states, the gradients that are never freed, and gathers parameters as a forward pass does. Keys and
    values that earlier layers have kept by then are told apart from activations.
    """
    if not stage.job.evaluation.micro_batch_size:
        return []
    from .evaluation import gathered_logits, last_logits, passes

    state = state.evaluating()
    before, joined = gathered_logits(stage.job, stage.whole)
    run = passes(stage.job, stage.whole)
    gradients = state.gradients_at(0) if state.persistent_grad_buffer else []
    standing = [*fixed, *gradients]
    earlier = [line("logits", before, "logits of earlier evaluation steps", EVALUATION)] if before else []
    phases = evaluated(stage.job, stage.whole, standing) if replicated(stage.job) else []
    for item, cached in run.instants:
        caches = _told_apart(cached, layer_caches(stage.whole)[: item.layer])
        found = [*item.terms, *state.activations_at(item), *earlier, *caches, *state.buffers_at(item)]
        phases.append(Phase("evaluation", (*state.step_buffers, *standing, *found), item))
    if run.widened:
        label = "their float32 copies, which are made with those of the logits"
        ended = [line("logits", last_logits(stage.job, stage.whole), "logits of the pass, in float32", EVALUATION)]
        caches = [line("kv_cache", run.kept, KEPT, CACHED), line("kv_cache", run.widened, label, CACHED)]
        phases.append(Phase("evaluation", (*standing, *earlier, *ended, *caches)))
    if phases and joined:
        what = "logits of the steps that are kept, as they are and joined to one tensor"
        phases.append(Phase("evaluation", (*standing, line("logits", joined, what, EVALUATION))))
    return sorted(phases, key=lambda phase: phase.allocated)[-1:]


KEPT = "keys and values, which the outputs hold to the end of the pass"


def _told_apart(size: int, layers: Sequence[LayerCache]) -> list[Term]:
    """Keys and values of `layers` that the outputs hold, taken from the activations they are among."""
    number = sum(cache.grows for cache in layers)
    each, odd = divmod(size, max(1, number))
    formula = f"{size:,} B" if odd else f"{number} layers x {each:,} B"
    kept = Term("kv_cache", formula, size, CACHED, KEPT)
    among = Term("activations", f"- {formula}", -size, CACHED, "keys and values among them, told as the cache")
    return [kept, among] if size else []


class MicroStep(NamedTuple):
    """The candidate peaks of one micro step, and bytes of activations that its backward pass `left` to the next one.

    `in_flight` is what the other micro batches of a pipeline keep through all of it. `bounded` is False where the batch
    or the length is not known, and there are no candidates.
    """

    candidates: Sequence[PeakCandidate] = ()
    left: int = 0
    in_flight: tuple[Term, ...] = ()
    bounded: bool = True


def micro_step(job: Job, model: Model, stage: Stage | None = None) -> MicroStep:
    """The micro step of a job, or of one pipeline stage.

    On a pipeline stage before the last the layers alone are looked at, and each further micro batch in flight keeps
    what a forward pass of the stage's layers leaves. On the last one the backward pass of a loss follows its forward
    pass, so that of those further micro batches none has come to the head, but where all forward passes come first.
    """
    if not job.micro_batch_size or not job.sequence_length:
        return MicroStep(bounded=False)
    from .activations import replayed

    found, held = replayed(job, model)
    if stage is None or stage.of <= 1:
        return MicroStep(found, held.pinned)
    others = _in_flight(stage, held)
    if stage.last:
        return MicroStep(found, held.pinned, (*others, *_deferred(stage)))
    inside = (item for item in found if item.layer is not None)
    done = [item._replace(gradient_elements=max(0, item.gradient_elements - held.head)) for item in inside]
    return MicroStep(done, 0, tuple(others))


def left_by_forward(stage: Stage) -> int:
    """Bytes that a forward pass with its loss leaves until the backward pass."""
    from .activations import replayed

    return replayed(stage.job, stage.whole)[1].all


def _in_flight(stage: Stage, held: Held) -> list[Term]:
    """What the other micro batches that a stage has in flight keep."""
    first = stage.job.parallelism.pipeline_schedule == "gpipe"
    count, each = stage.held - 1, held.all if stage.last and first else held.layers
    what = "what the stage's layers keep of each other micro batch in flight"
    size = int(count * each)
    return [Term("activations", f"{count:g} x {each:,} B", size, _SCHEDULE, what)] if size else []


_SCHEDULE = "estimator/states/stage.py"


def _deferred(stage: Stage) -> list[Term]:
    """What waits on the last stage for the head's weight gradient: gradients of logits, and the head's inputs.

    e T V/t and e T h for each micro batch before the one in flight (megatron/core/tensor_parallel/layers.py
    `LinearWithGradAccumulationAndAsyncCommunication`, `embedding_activation_buffer`); or logits that stay.
    """
    job, shape = stage.job, stage.whole.shape
    count = min(job.loss.deferred, job.gradient_accumulation_steps - 1)
    if count < 1 or stage.of <= 1:
        size = int(kept_outputs(stage) * dtype_bytes(gathered_dtype(job) or base_dtype(job, stage.whole)))
        what = "outputs of other micro batches that stay"
        return [line("logits", size, what, "torch distributed/pipelining/stage.py output_chunks")] if size else []
    tokens = (job.micro_batch_size or 0) * (job.sequence_length or 0)
    rows = (count * tokens // max(1, job.parallelism.context), "tokens")
    width = int(dtype_bytes(base_dtype(job, stage.whole)))
    logits = Product(
        "gradients of logits until the head's weight gradient",
        width,
        (rows, -(-shape.vocabulary // job.parallelism.tensor)),
    )
    inputs = Product("inputs of the head that wait for its weight gradient", width, (rows, shape.hidden))
    return [*terms("activations", (inputs,), _MEGATRON), *terms("logits", (logits,), _MEGATRON)]


_MEGATRON = "megatron/core/tensor_parallel/layers.py embedding_activation_buffer"
