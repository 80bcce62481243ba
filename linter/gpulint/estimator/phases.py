"""The phases of a training run on one rank: what always stands there, and what an instant or a step adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .allocator import runtime
from .estimate import Phase
from .sharding.one_process import evaluated, replicated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..hardware.gpu import Gpu
    from ..job.job import Job
    from .peak_candidate import Instant
    from .sharding.layout import Layout
    from .states import reference
    from .states.stage import Stage

MICRO_STEP = ("forward", "loss", "backward")
STEP = (*MICRO_STEP, "optimizer_step")
"""The phases that alternate in every step; an evaluation runs on blocks that training does not ask for meanwhile."""


def standing(job: Job, plan: Layout, extra: reference.Frozen, gpu: Gpu | None) -> dict[str, int]:
    """Bytes of each component that every instant of a step holds: weights, frozen extra models, states, workspaces."""
    return {
        "weights": plan.weights + extra.size,
        "adapter": plan.adapter,
        "gradients": 0,
        "optimizer": plan.optimizer,
        "activations": 0,
        "logits": 0,
        "kv_cache": 0,
        "buffers": runtime.allocated_workspace(job, gpu),
    }


def loading(plan: Layout, fixed: dict[str, int], later: int) -> Phase:
    """The weights are in but `later` bytes, no step was taken: no states and no buffers, but what loading needs."""
    return Phase("load", {**fixed, "weights": fixed["weights"] - later, "optimizer": 0, "buffers": plan.load})


def micro_phases(plan: Layout, fixed: dict[str, int], found: Sequence[Instant]) -> list[Phase]:
    """The instant with most memory of each phase of a micro step."""
    best: dict[str, Phase] = {}
    for instant in found:
        phase = at_instant(plan, fixed, instant)
        if instant.phase not in best or phase.allocated > best[instant.phase].allocated:
            best[instant.phase] = phase
    return list(best.values())


def at_instant(plan: Layout, fixed: dict[str, int], instant: Instant) -> Phase:
    """An instant with what stands and what the layout gathers and holds in buckets then."""
    split = {
        **fixed,
        "gradients": plan.gradient_bytes(instant.gradient_elements),
        "activations": plan.activation_bytes(instant),
        "logits": instant.logits,
        "buffers": fixed["buffers"] + plan.buffer_bytes(instant),
    }
    return Phase(instant.phase, split)


def marks(phases: Sequence[Phase], plan: Layout, fixed: dict[str, int], found: Sequence[Instant]) -> list[Phase]:
    """The phases, and the instants with most of each component, which need not be the peak of their phase.

    All before the last reduction of a pass, whose copies find their room among what the computation freed.
    """
    found = [instant for instant in found if not plan.ending(instant)]
    if not found:
        return list(phases)
    most = (
        max(found, key=plan.activation_bytes),
        max(found, key=lambda instant: instant.logits),
        max(found, key=plan.buffer_bytes),
        max(found, key=lambda instant: plan.gradient_bytes(instant.gradient_elements)),
    )
    phases = [phase for phase in phases if phase.name not in MICRO_STEP] + micro_phases(plan, fixed, found)
    return [*phases, *(at_instant(plan, fixed, instant) for instant in most)]


def optimizer_step(plan: Layout, fixed: dict[str, int], left: int) -> Phase:
    """All gradients, the states and what the step itself makes, with `left` bytes of activations not gone yet."""
    gradients = plan.largest_gradient if plan.in_backward else plan.gradients
    split = {
        **fixed,
        "gradients": gradients + plan.step_gradients,
        "optimizer": fixed["optimizer"] + plan.visiting + plan.step_optimizer,
        "activations": left,
        "buffers": fixed["buffers"] + plan.step_buffers,
    }
    return Phase("optimizer_step", split)


def evaluation(stage: Stage, plan: Layout, fixed: dict[str, int]) -> list[Phase]:
    """The instant of an evaluation step with most memory; none where none is configured.

    It finds the states, the gradients that are never freed, and gathers parameters as a forward pass does. Keys and
    values that earlier layers have kept by then are told apart from activations.
    """
    if not stage.job.evaluation.micro_batch_size:
        return []
    from .evaluation import gathered_logits, last_logits, passes

    plan = plan.evaluating()
    before, joined = gathered_logits(stage.job, stage.whole)
    run = passes(stage.job, stage.whole)
    gradients = plan.gradient_bytes(0) if plan.lasting else 0
    phases = evaluated(stage.job, stage.whole, fixed, gradients) if replicated(stage.job) else []
    for item, cached in run.instants:
        found = at_instant(plan, fixed, item).components
        split = {
            "gradients": gradients,
            "activations": found["activations"] - cached,
            "logits": found["logits"] + before,
            "kv_cache": cached,
        }
        phases.append(Phase("evaluation", {**found, **split}))
    if run.widened:
        ended = {"gradients": gradients, "logits": before + last_logits(stage.job, stage.whole)}
        phases.append(Phase("evaluation", {**fixed, **ended, "kv_cache": run.kept + run.widened}))
    if phases and joined:
        phases.append(Phase("evaluation", {**fixed, "gradients": gradients, "logits": joined}))
    return sorted(phases, key=lambda phase: phase.allocated)[-1:]
