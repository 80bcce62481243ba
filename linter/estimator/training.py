"""The memory of a training job: what is alive at each instant of a step, and the largest of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..job import Parallelism
from ..models.model import text_config
from . import assumptions, uncertainty
from .allocator import runtime, tiers
from .coverage import gaps
from .estimate import Assumption, Estimate, NotEstimable, Phase, Term
from .frameworks import megatron_buffers
from .frameworks.stable_embedding import unmade
from .layers import low_precision
from .layers.objectives import objective
from .serving import rollout
from .serving.causal_masks import causal_masks
from .sharding import host
from .sharding.layout import Layout
from .sharding.layouts import layout
from .sharding.one_process import evaluated, gathered, replicated, unknown_caches
from .sharding.saving import saving
from .states import reference
from .states.imbalance import dropless, unbalanced
from .states.loading import warmed
from .states.parameters import base_dtype, elements, gathered_dtype, parameters
from .states.quantization import unpacked_perhaps
from .states.stage import kept_outputs, pipeline
from .states.storage import dtype_bytes
from .towers import unseen
from .towers.waiting import waiting
from .verdict import capacity, verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..hardware.gpu import Gpu
    from ..job import Job
    from ..models.model import Model
    from .activations import Held
    from .estimate import Spread
    from .instant import Instant
    from .states.stage import Stage

MICRO_STEP = ("forward", "loss", "backward")
STEP = (*MICRO_STEP, "optimizer_step")
"""The phases that alternate in every step; an evaluation runs on blocks that training does not ask for meanwhile."""


def estimate_training(
    job: Job, model: Model, gpu: Gpu | None, *, replay: bool = True, spread: Spread = "always"
) -> Estimate:
    """The Estimate of a training job on the rank that holds most.

    Every instant holds weights, adapter, optimizer states (they exist from the first step on, so the second step
    counts), frozen extra models and buffers. On top: at an instant of forward, loss or backward its activations,
    logits, the gradients complete by then, gathered parameters and communication buckets; at the optimizer step all
    gradients and the step's temporaries. The peak is the largest instant; nothing is summed over instants.
    Without a micro batch size or a sequence length the states alone are counted: a lower bound.
    `replay` False leaves the allocator out: `low` and `exceeds` are the same, other tiers are bounds (slack.packed).
    `spread` says when `high` holds what batches of many lengths may make of it.
    Raises NotEstimable when nothing can be derived.
    """
    if not model.tensors:
        raise NotEstimable(f"the tensors of {model.id} are not known")
    found = by_stage(job, model, gpu, replay=replay, spread=spread)
    fullest = max(found, key=lambda item: (item.per_gpu.process, item.per_gpu.allocated))
    return _up_to_longest(job, model, gpu, fullest) if replay else fullest


def by_stage(
    job: Job, model: Model, gpu: Gpu | None, *, replay: bool = True, spread: Spread = "always"
) -> list[Estimate]:
    """The Estimates of the pipeline stages that can hold most (`pipeline`), the last one's last."""
    return [_on_stage(job, model, stage, gpu, replay=replay, spread=spread) for stage in pipeline(job, model)]


def _up_to_longest(job: Job, model: Model, gpu: Gpu | None, found: Estimate) -> Estimate:
    """Where only the batch is known: `high` is that of rows as long as the model's positions, or what the card has.

    So too where nothing cuts rows to the length that is stated. A config that names no positions leaves the card alone
    as a bound. A card that a sixteenth of them fills is filled by all of them: more tokens never need less.
    """
    config = text_config(model.config)
    longest = config.get("max_position_embeddings", config.get("n_positions"))
    uncut = "sequence_length" in job.unstated
    if (job.sequence_length and not uncut) or not job.micro_batch_size:
        return found
    most = gpu.usable if gpu is not None else 0
    if isinstance(longest, int) and longest > 0:
        try:
            for length in (max(1, longest // 16), longest):
                longer = job.with_changes({"sequence_length": max(length, job.sequence_length or 0), "unstated": []})
                most = estimate_training(longer, model, gpu, replay=False).per_gpu.high
                if gpu is not None and most >= gpu.usable:
                    break
        except NotEstimable:
            return found
    more = (most if gpu is None else min(most, gpu.usable)) - found.per_gpu.high
    if more <= 0:
        return found
    note = "no length is stated: the estimate is a lower bound, and rows may be as long as the model's positions"
    if uncut:
        note = "nothing cuts rows to the length that is stated: they may be as long as the model's positions"
    unknown = Assumption("sequence_length", f"up to {longest}" if longest else "any", note, 0, more)
    widened = uncertainty.widened(found.per_gpu, [unknown])
    over = gpu is not None and most > gpu.usable
    said = "tight" if over and found.verdict == "fits" else found.verdict
    return replace(found, per_gpu=widened, verdict=said, assumptions=(*found.assumptions, unknown))


def _on_stage(job: Job, model: Model, stage: Stage, gpu: Gpu | None, *, replay: bool, spread: Spread) -> Estimate:
    """The Estimate of the ranks of one pipeline stage."""
    plan = layout(stage.job, stage.own)
    plan.load = max(plan.load, warmed(parameters(stage.job, stage.own), stage.job, gpu) - plan.weights)
    extra = reference.frozen_models(stage.job, stage.own)
    narrow = low_precision.workspace(job, model)
    fixed = _fixed(job, plan, extra, gpu)
    masks = causal_masks(stage.job, stage.own)
    engine_buffers = megatron_buffers.held(stage.job, stage.own, gpu)
    fixed["buffers"] += narrow.size + engine_buffers + masks
    loaded = dict(fixed)
    rows = (job.micro_batch_size or 0) * objective(job).sequences if stage.of == 1 else 0
    pixels, others = waiting(stage.job, stage.whole, rows)
    fixed["buffers"] += others
    found, bounded, left = instants_of(stage.job, stage.whole, stage)
    found = [*found, *(plan.later() if bounded else ())]
    phases = [
        _load(plan, loaded, unmade(parameters(stage.job, stage.own))),
        *_step_phases(plan, fixed, found),
        _optimizer_step(plan, fixed, left + pixels),
    ]
    if stage.last:
        phases += _evaluation(stage, plan, fixed)
    if bounded and replicated(stage.job):
        phases += gathered(stage.job, stage.whole, fixed, left_by_forward(stage), plan.gradient_bytes(0))
    tensors = parameters(stage.job, stage.own)
    written = saving(stage.job, stage.own, tensors)
    if written.device:
        phases.append(Phase("save", {**fixed, "buffers": fixed["buffers"] + written.device}))
    terms = [*plan.terms, *extra.terms, *written.terms]
    engine = rollout.engine(job, gpu)
    if engine is not None:
        phases = engine.beside(phases, fixed)
        terms += engine.terms
    peak = max(phases, key=lambda phase: phase.allocated)
    terms += _instant_terms(peak, job, gpu)
    for size, what, source in (
        (masks, "causal masks of all positions", "estimator/serving/causal_masks.py"),
        (narrow.size, "operands of products in 8 or 4 bits", "estimator/layers/low_precision.py"),
        (engine_buffers, "Megatron's own buffers", "estimator/frameworks/megatron_buffers.py"),
        (others, "images of the step's other micro batches", "estimator/towers/waiting.py"),
    ):
        terms += [Term("buffers", f"{size:,} B", size, source, what)] if size else []
    offloaded = plan.host + host.checkpoints(stage.job, stage.whole)
    main, lines = host.memory(stage.job, stage.own, tensors, offloaded, written.host)
    terms += lines
    steps = [phase for phase in _marks(phases, plan, fixed, found) if phase.name in STEP]
    held = tiers.held(stage, gpu, plan, phases, steps, bounded=bounded, replay=replay)
    per_gpu, overhead = tiers.tiers(gpu, held, runtime.process_overhead(gpu, job), peak, plan, bounded)
    if bounded:
        per_gpu = replace(per_gpu, high=per_gpu.high + unbalanced(stage.job, stage.own))
    per_gpu = replace(per_gpu, low=max(0, per_gpu.low - narrow.slack))
    unknown = gaps(job, model, peak.components["activations"], phases) if bounded else []
    unknown += unseen.images(stage.job, stage.whole, most=replay) if bounded and stage.last else []
    unknown += unknown_caches(stage.job, stage.whole) if bounded else []
    unknown += uncertainty.gathered_anew(job, plan.anew) if bounded else []
    unknown += unpacked_perhaps(stage.job, stage.whole, tensors)
    unknown += uncertainty.unstated(job, plan.optimizer + plan.visiting)
    if stage.last and bounded:
        resident = plan.weights + plan.gradients + plan.optimizer
        unknown += uncertainty.further_heads(job, stage.own.shape.layers, resident, phases)
        unknown += uncertainty.compiled_loss(stage.job, stage.own, phases)
    unknown += uncertainty.compiled_step(stage.job, phases, plan.step_optimizer)
    unknown += uncertainty.waiting(stage.job, stage.whole, tensors, phases, plan.visiting)
    unknown += _made_again(stage, plan, fixed, phases) if bounded else []
    unknown += uncertainty.while_loading(stage.job, tensors, phases[0].allocated, held.high)
    less = sum(item.low for item in unknown)
    unknown += unseen.states(stage.job, stage.whole, stage.own) if bounded and stage.last else []
    per_gpu = uncertainty.widened(per_gpu, unknown)
    judged = verdict(per_gpu, gpu, bounded=bounded)
    if bounded:
        if gpu is not None and (spread == "always" or (spread == "doubt" and judged == "tight")):
            held = tiers.lengthening(stage, plan, held, peak.allocated)
        moving = [*uncertainty.at_run_time(job, tensors, phases, held, less), *dropless(stage.job, stage.own)]
        moving += _kept_logits(stage)
        per_gpu = uncertainty.capped(uncertainty.widened(per_gpu, moving), gpu, judged)
        unknown += moving
    return Estimate(
        kind="training",
        model_id=model.id,
        parameters=model.parameters,
        trainable_parameters=_trainable(job, model),
        per_gpu=per_gpu,
        phases=tuple(phases),
        peak=peak,
        runtime=overhead,
        verdict=judged,
        capacity=capacity(gpu),
        host=offloaded,
        assumptions=(*assumptions.assumptions(job, model, bounded=bounded), *unknown),
        terms=tuple(terms),
        fullest=stage.name if stage.of > 1 else None,
        host_memory=main,
    )


def instants_of(job: Job, model: Model, stage: Stage | None = None) -> tuple[Sequence[Instant], bool, int]:
    """The candidate peaks of one micro step; none, and False, where the batch or the length is unknown.

    And bytes of activations that its backward pass leaves until the next forward pass.

    On a pipeline stage before the last the layers alone are looked at, and each further micro batch in flight keeps
    what a forward pass of the stage's layers leaves. On the last one the backward pass of a loss follows its forward
    pass, so that of those further micro batches none has come to the head, but where all forward passes come first.
    """
    if not job.micro_batch_size or not job.sequence_length:
        return [], False, 0
    from .activations import replayed

    found, held = replayed(job, model)
    if stage is None or stage.of <= 1:
        return found, True, held.pinned
    left = held.pinned if stage.last else 0
    return [item for item in (on_stage(item, stage, held) for item in found) if item is not None], True, left


def left_by_forward(stage: Stage) -> int:
    """Bytes that a forward pass with its loss leaves until the backward pass."""
    from .activations import replayed

    return replayed(stage.job, stage.whole)[1].all


def on_stage(item: Instant, stage: Stage, held: Held) -> Instant | None:
    """An instant of one micro batch as a pipeline stage has it, with what the other ones in flight keep."""
    first = stage.job.parallelism.pipeline_schedule == "gpipe"
    others = int((stage.held - 1) * (held.all if stage.last and first else held.layers))
    if stage.last:
        waiting, inputs = deferred(stage)
        return item._replace(activations=item.activations + others + inputs, logits=item.logits + waiting)
    if item.layer is None:
        return None
    done = max(0, item.gradient_elements - held.head)
    return item._replace(activations=item.activations + others, gradient_elements=done)


def deferred(stage: Stage) -> tuple[int, int]:
    """Bytes that wait on the last stage for the head's weight gradient: gradients of logits, and the head's inputs.

    e T V/t and e T h for each micro batch before the one in flight (megatron/core/tensor_parallel/layers.py
    `LinearWithGradAccumulationAndAsyncCommunication`, `embedding_activation_buffer`); or logits that stay.
    """
    job, shape = stage.job, stage.whole.shape
    count = min(job.loss.deferred, job.gradient_accumulation_steps - 1)
    if count < 1 or stage.of <= 1:
        return int(kept_outputs(stage) * dtype_bytes(gathered_dtype(job) or base_dtype(job, stage.whole))), 0
    each = count * (job.micro_batch_size or 0) * (job.sequence_length or 0) // max(1, job.parallelism.context)
    width = int(dtype_bytes(base_dtype(job, stage.whole)))
    return width * each * -(-shape.vocabulary // job.parallelism.tensor), width * each * shape.hidden


def _fixed(job: Job, plan: Layout, extra: reference.Frozen, gpu: Gpu | None) -> dict[str, int]:
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


def _evaluation(stage: Stage, plan: Layout, fixed: dict[str, int]) -> list[Phase]:
    """The instant of an evaluation step with most memory; none where none is configured.

    It finds the states, the gradients that are never freed, and gathers parameters as a forward pass does. Before layer
    l of n there are l / n of the keys and values that it keeps.
    """
    if not stage.job.evaluation.micro_batch_size:
        return []
    from .evaluation import caches, gathered_logits, instants, last_logits

    plan = plan.evaluating()
    before, joined = gathered_logits(stage.job, stage.whole)
    kept, widened = caches(stage.job, stage.whole)
    gradients = plan.gradient_bytes(0) if plan.lasting else 0
    phases = evaluated(stage.job, stage.whole, fixed, gradients) if replicated(stage.job) else []
    for item in instants(stage.job, stage.whole):
        found = _instant(plan, fixed, item).components
        cached = kept if item.layer is None else kept * item.layer // stage.whole.shape.layers
        split = {
            "gradients": gradients,
            "logits": found["logits"] + before,
            "kv_cache": cached,
        }
        phases.append(Phase("evaluation", {**found, **split}))
    if widened:
        ended = {"gradients": gradients, "logits": before + last_logits(stage.job, stage.whole)}
        phases.append(Phase("evaluation", {**fixed, **ended, "kv_cache": kept + widened}))
    if phases and joined:
        phases.append(Phase("evaluation", {**fixed, "gradients": gradients, "logits": joined}))
    return sorted(phases, key=lambda phase: phase.allocated)[-1:]


def _made_again(stage: Stage, plan: Layout, fixed: dict[str, int], phases: Sequence[Phase]) -> list[Assumption]:
    """Modules that are made again or offloaded one by one: at best not even the inputs of layers stay."""
    job = stage.job
    if "checkpoint_policy" not in job.unstated:
        return []
    fewest = instants_of(replace(job, activation_checkpointing="offload"), stage.whole, stage)[0]
    least = [*_step_phases(plan, fixed, fewest), *(phase for phase in phases if phase.name not in MICRO_STEP)]
    less = max(phase.allocated for phase in phases) - max(phase.allocated for phase in least)
    note = "modules are made again or offloaded one by one, which is not counted, only bounded by whole layers"
    return [Assumption("checkpoint_policy", str(job.checkpoint_policy), note, less, 0)] if less > 0 else []


def _kept_logits(stage: Stage) -> list[Assumption]:
    if not stage.last or not stage.job.evaluation.micro_batch_size:
        return []
    from .evaluation import further_logits

    return uncertainty.kept_logits(stage.job, further_logits(stage.job, stage.whole))


def _load(plan: Layout, fixed: dict[str, int], later: int) -> Phase:
    """The weights are in but `later` bytes, no step was taken: no states and no buffers, but what loading needs."""
    return Phase("load", {**fixed, "weights": fixed["weights"] - later, "optimizer": 0, "buffers": plan.load})


def _step_phases(plan: Layout, fixed: dict[str, int], found: Sequence[Instant]) -> list[Phase]:
    best: dict[str, Phase] = {}
    for instant in found:
        phase = _instant(plan, fixed, instant)
        if instant.phase not in best or phase.allocated > best[instant.phase].allocated:
            best[instant.phase] = phase
    return list(best.values())


def _instant(plan: Layout, fixed: dict[str, int], instant: Instant) -> Phase:
    split = {
        **fixed,
        "gradients": plan.gradient_bytes(instant.gradient_elements),
        "activations": plan.activation_bytes(instant),
        "logits": instant.logits,
        "buffers": fixed["buffers"] + plan.buffer_bytes(instant),
    }
    return Phase(instant.phase, split)


def _marks(phases: Sequence[Phase], plan: Layout, fixed: dict[str, int], found: Sequence[Instant]) -> list[Phase]:
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
    phases = [phase for phase in phases if phase.name not in MICRO_STEP] + _step_phases(plan, fixed, found)
    return [*phases, *(_instant(plan, fixed, instant) for instant in most)]


def _optimizer_step(plan: Layout, fixed: dict[str, int], left: int) -> Phase:
    gradients = plan.largest_gradient if plan.in_backward else plan.gradients
    split = {
        **fixed,
        "gradients": gradients + plan.step_gradients,
        "optimizer": fixed["optimizer"] + plan.visiting + plan.step_optimizer,
        "activations": left,
        "buffers": fixed["buffers"] + plan.step_buffers,
    }
    return Phase("optimizer_step", split)


def _trainable(job: Job, model: Model) -> int:
    """Trainable parameters of the whole model, over all ranks."""
    whole = replace(job, parallelism=Parallelism())
    return elements(item for item in parameters(whole, model) if item.trainable or item.idle)


def _instant_terms(peak: Phase, job: Job, gpu: Gpu | None) -> list[Term]:
    lines = []
    rows = job.evaluation.micro_batch_size if peak.name == "evaluation" else job.micro_batch_size
    for name in ("activations", "logits"):
        if size := peak.components.get(name):
            tokens = f"{rows} x {job.sequence_length} tokens" if rows and job.sequence_length else "a micro batch"
            what = f"what a pass over {tokens} leaves alive at the peak ({peak.name.replace('_', ' ')})"
            lines.append(Term(name, f"{size:,} B", size, "estimator/activations.py", what))
    handles, each = runtime.workspaces(job, gpu)
    workspaces = handles * each, runtime.WORKSPACE, "cuBLAS workspaces, one a thread"
    return [*lines, Term("buffers", f"{handles} x {each:,} B", *workspaces)]
