"""What no config tells of a training run, row by row: the bytes by which each fact moves the interval."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from . import uncertainty
from .activations import replayed
from .estimate import Assumption
from .evaluation import further_logits
from .inputs.image_inputs import IMAGES, PIXELS, image_inputs, resolutions_of, vision_spec
from .phases import MICRO_STEP, micro_phases, micro_step
from .sharding.one_process import unknown_caches
from .sharding.strategy import sharded_state
from .states.imbalance import dropless
from .unmodeled import gaps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..job.job import Job
    from ..models.model import Model
    from .allocator.fragmentation import Held
    from .estimate import Phase
    from .inputs.image_inputs import ImageInputs
    from .phases import MicroStep
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
    Row(lambda run: image_assumptions(run.stage.job, run.stage.whole, most=run.replay), bounded=True, last=True),
    Row(lambda run: unknown_caches(run.stage.job, run.stage.whole), bounded=True),
    Row(lambda run: uncertainty.gathered_anew(run.job, run.state.largest_allgather), bounded=True),
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
        lambda run: tower_states(run.stage.job, run.stage.whole, run.stage.own),
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


def image_assumptions(job: Job, model: Model, *, most: bool) -> list[Assumption]:
    """What is assumed of the images of a model whose tower is replayed; `most`: whether `high` is asked for.

    Without a stated number a sequence has one, or none, or as many as fill it. Without a stated size an image that a
    tower reads at any size has PIXELS, and as many as fill the sequence at most.
    """
    counted = image_inputs(job, model, 1)
    if counted is None or (job.images is not None and (counted.fixed or job.image_pixels is not None)):
        return []
    now = _kept(job, model)
    less = 0
    if job.images is None:
        text = job.with_changes({"images": 0})
        less = now - _kept(text, model)
    more = _kept(_filled(job, model, counted), model) - now if most else 0
    pixels = "the size that the model has" if counted.fixed else f"{job.image_pixels or PIXELS:,} pixels"
    number = IMAGES if job.images is None else job.images
    note = f"taken to be {number} a sequence, of {pixels}: no config tells what the data have"
    return [Assumption("images", str(number), note, max(0, less), max(0, more))]


def tower_states(job: Job, model: Model, own: Model) -> list[Assumption]:
    """What a trained tower holds beside its weights: of text alone it gets neither gradients nor states."""
    if job.images is not None or image_inputs(job, model, 1) is None:
        return []
    less = _states(job, own) - _states(job.with_changes({"images": 0}), own)
    note = "of text alone the tower gets neither gradients nor states"
    return [Assumption("images", str(IMAGES), note, less, 0)] if less > 0 else []


def _states(job: Job, model: Model) -> int:
    """Bytes of gradients and optimizer states."""
    state = sharded_state(job, model)
    return state.gradients + state.optimizer


def _most_patches(job: Job, model: Model, places: int) -> Job:
    """As many images that are cut up as fill the sequence, of the size at which they have most patches."""
    how = vision_spec(model)
    sizes = {height * width for height, width in resolutions_of(model, how) if height == width} if how else set()
    found: dict[int, Job] = {}
    for size in {PIXELS, *sizes}:
        one = job.with_changes({"images": 1, "image_pixels": size})
        seen = image_inputs(one, model, 1)
        if seen is not None and seen.places <= places:
            number = job.images or max(1, places // seen.places)
            filled = one.with_changes({"images": number})
            found[(image_inputs(filled, model, 1) or seen).rows] = filled
    return found[max(found)] if found else job


def _filled(job: Job, model: Model, counted: ImageInputs) -> Job:
    """The job with as many image tokens as its sequences have places."""
    places = job.sequence_length or 0
    if counted.fixed or job.image_pixels is not None:
        return job.with_changes({"images": max(counted.given, places // max(1, counted.places))})
    if counted.cut is not None:
        return _most_patches(job, model, places)
    share = counted.patches * places // max(1, counted.tokens * counted.images)
    return job.with_changes({"images": counted.images, "image_pixels": share * counted.patch**2})


def _kept(job: Job, model: Model) -> int:
    """The most bytes of activations and logits of a micro step."""
    return max(item.activations + item.logits for item in replayed(job, model)[0])
