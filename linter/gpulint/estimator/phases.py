"""The phases of a training run on one rank: what always stands there, and what an instant or a step adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .estimate import Phase
from .serving.kv_cache import layer_caches
from .sharding.one_process import evaluated, replicated
from .terms import Term, line, total

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .micro_step import MicroStep
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
