"""What no config tells of a training run, row by row: the bytes by which each fact moves the interval."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from . import uncertainty, unmodeled_vision
from .estimate import Assumption
from .evaluation import further_logits
from .micro_step import micro_step
from .phases import MICRO_STEP, micro_phases
from .sharding.one_process import unknown_caches
from .states.imbalance import dropless
from .states.quantization import unpacked_perhaps
from .unmodeled import gaps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..job.job import Job
    from ..models.model import Model
    from .allocator.fragmentation import Held
    from .estimate import Phase
    from .micro_step import MicroStep
    from .sharding.sharded_state import ShardedState
    from .states.parameter import Parameter
    from .states.stage import Stage
    from .terms import Term


class StageRun(NamedTuple):
    """A pipeline stage's run as far as it is known: what stands in it (`fixed`), its micro step, phases and peak."""

    job: Job
    model: Model
    stage: Stage
    state: ShardedState
    fixed: Sequence[Term]
    step: MicroStep
    phases: Sequence[Phase]
    peak: Phase
    tensors: Sequence[Parameter]
    held: Held
    replay: bool

    @property
    def resident(self) -> int:
        """Bytes of weights, gradients and states."""
        return self.state.weights + self.state.gradients + self.state.optimizer

    @property
    def states(self) -> int:
        """Bytes of the optimizer's states, here or in host memory between steps."""
        return self.state.optimizer + self.step_states

    @property
    def step_states(self) -> int:
        """Bytes of the states that are on the GPU for the step alone."""
        return sum(term.size for term in self.state.step_resident_states)


class Row(NamedTuple):
    """One kind of unknown: what it may be, and of which runs it is told.

    bounded   the batch and its length are known;  last  of the last pipeline stage alone
    batch     what it takes off `low` is a batch's, which a shorter one leaves out anyway
    """

    found: Callable[[StageRun], list[Assumption]]
    bounded: bool = False
    last: bool = False
    batch: bool = True

    def of(self, run: StageRun) -> list[Assumption]:
        """The assumptions of a run; none where the row is not told of it."""
        told = (run.step.bounded or not self.bounded) and (run.stage.last or not self.last)
        return self.found(run) if told else []


def _made_again(run: StageRun) -> list[Assumption]:
    """Modules that are made again or offloaded one by one: at best not even the inputs of layers stay."""
    job, phases = run.stage.job, run.phases
    if "checkpoint_policy" not in job.unstated:
        return []
    fewest = micro_step(replace(job, activation_checkpointing="offload"), run.stage.whole, run.stage)
    others = (phase for phase in phases if phase.name not in MICRO_STEP)
    least = [*micro_phases(run.state, run.fixed, fewest), *others]
    less = max(phase.allocated for phase in phases) - max(phase.allocated for phase in least)
    note = "modules are made again or offloaded one by one, which is not counted, only bounded by whole layers"
    return [Assumption("checkpoint_policy", str(job.checkpoint_policy), note, less, 0)] if less > 0 else []


def _further_logits(run: StageRun) -> list[Assumption]:
    job = run.stage.job
    if not job.evaluation.micro_batch_size:
        return []
    return uncertainty.kept_logits(job, further_logits(job, run.stage.whole))


DECIDING = (
    Row(lambda run: gaps(run.job, run.model, run.peak.components["activations"], run.phases), bounded=True),
    Row(lambda run: unmodeled_vision.images(run.stage.job, run.stage.whole, most=run.replay), bounded=True, last=True),
    Row(lambda run: unknown_caches(run.stage.job, run.stage.whole), bounded=True),
    Row(lambda run: uncertainty.gathered_anew(run.job, run.state.largest_allgather), bounded=True),
    Row(lambda run: unpacked_perhaps(run.stage.job, run.stage.whole, run.tensors)),
    Row(lambda run: uncertainty.unstated(run.job, run.states)),
    Row(
        lambda run: uncertainty.further_heads(run.job, run.stage.own.shape.layers, run.resident, run.phases),
        bounded=True,
        last=True,
    ),
    Row(lambda run: uncertainty.compiled_loss(run.stage.job, run.stage.own, run.phases), bounded=True, last=True),
    Row(lambda run: uncertainty.compiled_step(run.stage.job, run.phases, run.state.step_optimizer)),
    Row(lambda run: uncertainty.waiting(run.stage.job, run.stage.whole, run.tensors, run.phases, run.step_states)),
    Row(_made_again, bounded=True),
    Row(lambda run: uncertainty.while_loading(run.stage.job, run.tensors, run.phases[0].allocated, run.held.high)),
    Row(
        lambda run: unmodeled_vision.states(run.stage.job, run.stage.whole, run.stage.own),
        bounded=True,
        last=True,
        batch=False,
    ),
)
"""What decides whether the longest batch that the config admits fits."""

AT_RUN_TIME = (
    Row(lambda run: dropless(run.stage.job, run.stage.own), bounded=True),
    Row(_further_logits, bounded=True, last=True),
)
"""What does not, but shows in a run, with what its data and its kernels may do (`uncertainty.at_run_time`)."""


def deciding(run: StageRun) -> tuple[list[Assumption], int]:
    """The rows of DECIDING that are told of a run, and the bytes that those of a batch take off `low`."""
    told = [(row, item) for row in DECIDING for item in row.of(run)]
    return [item for _, item in told], sum(item.low for row, item in told if row.batch)


def at_run_time(run: StageRun, counted: int) -> list[Assumption]:
    """The rows of AT_RUN_TIME behind what data and kernels may do; `counted` bytes of a batch are off `low` already."""
    found = uncertainty.at_run_time(run.job, run.tensors, run.phases, run.held, counted)
    return [*found, *(item for row in AT_RUN_TIME for item in row.of(run))]
