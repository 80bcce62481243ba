"""The memory of a training job: what is alive at each instant of a step, and the largest of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..job.job import Parallelism
from ..models.model import text_config
from . import assumptions, uncertainty, unmodeled_vision
from .allocator import memory_levels, runtime
from .estimate import Assumption, Estimate, NotEstimable, Phase, Term
from .inputs.objectives import objective
from .inputs.waiting_inputs import waiting
from .micro_step import instants_of, left_by_forward
from .phases import (
    MICRO_STEP,
    STEP,
    evaluation,
    loading,
    marks,
    micro_phases,
    optimizer_step,
    standing,
)
from .serving import rollout
from .serving.generation.causal_masks import causal_masks
from .sharding import host
from .sharding.layout import Layout
from .sharding.layouts import layout
from .sharding.one_process import gathered, replicated, unknown_caches
from .sharding.saving import saving
from .states import low_precision, reference
from .states.buffers import megatron, unsloth
from .states.buffers.stable_embedding import unmade
from .states.imbalance import dropless, unbalanced
from .states.loading import warmed
from .states.parameters import base_dtype, elements, parameters
from .states.quantization import unpacked_perhaps
from .states.stage import pipeline
from .unmodeled import gaps
from .verdict import capacity, verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..hardware.gpu import Gpu
    from ..job.job import Job
    from ..models.model import Model
    from .estimate import Spread
    from .states.stage import Stage


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
    most, over = gpu.usable if gpu is not None else 0, False
    if isinstance(longest, int) and longest > 0:
        try:
            for length in (max(1, longest // 16), longest):
                longer = job.with_changes({"sequence_length": max(length, job.sequence_length or 0), "unstated": []})
                filled = estimate_training(longer, model, gpu, replay=False)
                most = filled.per_gpu.high
                over = filled.verdict == "exceeds" or (gpu is not None and most > gpu.usable)
                if filled.verdict == "exceeds":
                    break
        except NotEstimable:
            return found
    more = (most if gpu is None else min(most, gpu.usable)) - found.per_gpu.high
    said = "tight" if over and found.verdict == "fits" else found.verdict
    if more <= 0:
        return replace(found, verdict=said)
    note = "no length is stated: the estimate is a lower bound, and rows may be as long as the model's positions"
    if uncut:
        note = "nothing cuts rows to the length that is stated: they may be as long as the model's positions"
    unknown = Assumption("sequence_length", f"up to {longest}" if longest else "any", note, 0, more)
    widened = uncertainty.widened(found.per_gpu, [unknown])
    return replace(found, per_gpu=widened, verdict=said, assumptions=(*found.assumptions, unknown))


def _on_stage(job: Job, model: Model, stage: Stage, gpu: Gpu | None, *, replay: bool, spread: Spread) -> Estimate:
    """The Estimate of the ranks of one pipeline stage."""
    plan = layout(stage.job, stage.own)
    plan.load = max(plan.load, warmed(parameters(stage.job, stage.own), stage.job, gpu) - plan.weights)
    extra = reference.frozen_models(stage.job, stage.own)
    narrow = low_precision.workspace(job, model)
    fixed = standing(job, plan, extra, gpu)
    masks = causal_masks(stage.job, stage.own)
    own_masks = unsloth.masks(stage.job, stage.own, base_dtype(stage.job, stage.own))
    engine_buffers = megatron.held(stage.job, stage.own, gpu)
    fixed["buffers"] += narrow.size + engine_buffers + masks + own_masks
    loaded = dict(fixed)
    rows = (job.micro_batch_size or 0) * objective(job).sequences if stage.of == 1 else 0
    pixels, others = waiting(stage.job, stage.whole, rows)
    fixed["buffers"] += others
    found, bounded, left = instants_of(stage.job, stage.whole, stage)
    found = [*found, *(plan.later() if bounded else ())]
    phases = [
        loading(plan, loaded, unmade(parameters(stage.job, stage.own))),
        *micro_phases(plan, fixed, found),
        optimizer_step(plan, fixed, left + pixels),
    ]
    if stage.last:
        phases += evaluation(stage, plan, fixed)
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
        (own_masks, "Gemma 2's masks of all positions", "estimator/frameworks/unsloth_buffers.py"),
        (narrow.size, "operands of products in 8 or 4 bits", "estimator/layers/low_precision.py"),
        (engine_buffers, "Megatron's own buffers", "estimator/frameworks/megatron_buffers.py"),
        (others, "images of the step's other micro batches", "estimator/towers/waiting.py"),
    ):
        terms += [Term("buffers", f"{size:,} B", size, source, what)] if size else []
    offloaded = plan.host + host.checkpoints(stage.job, stage.whole)
    main, lines = host.memory(stage.job, stage.own, tensors, offloaded, written.host)
    terms += lines
    steps = [phase for phase in marks(phases, plan, fixed, found) if phase.name in STEP]
    held = memory_levels.held(stage, gpu, plan, phases, steps, bounded=bounded, replay=replay)
    per_gpu, overhead = memory_levels.tiers(gpu, held, runtime.process_overhead(gpu, job), peak, plan, bounded)
    if bounded:
        per_gpu = replace(per_gpu, high=per_gpu.high + unbalanced(stage.job, stage.own))
    per_gpu = replace(per_gpu, low=max(0, per_gpu.low - narrow.slack))
    unknown = gaps(job, model, peak.components["activations"], phases) if bounded else []
    unknown += unmodeled_vision.images(stage.job, stage.whole, most=replay) if bounded and stage.last else []
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
    unknown += unmodeled_vision.states(stage.job, stage.whole, stage.own) if bounded and stage.last else []
    per_gpu = uncertainty.widened(per_gpu, unknown)
    judged = verdict(uncertainty.lowered(per_gpu), gpu, bounded=bounded)
    if bounded:
        if gpu is not None and (spread == "always" or (spread == "doubt" and judged == "tight")):
            held = memory_levels.lengthening(stage, plan, held, peak.allocated)
        moving = [*uncertainty.at_run_time(job, tensors, phases, held, less), *dropless(stage.job, stage.own)]
        moving += _kept_logits(stage)
        per_gpu = uncertainty.capped(uncertainty.widened(per_gpu, moving), gpu, judged)
        unknown += moving
    return Estimate(
        kind="training",
        model_id=model.id,
        parameters=model.parameters,
        trainable_parameters=_trainable(job, model),
        per_gpu=uncertainty.lowered(per_gpu),
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


def _made_again(stage: Stage, plan: Layout, fixed: dict[str, int], phases: Sequence[Phase]) -> list[Assumption]:
    """Modules that are made again or offloaded one by one: at best not even the inputs of layers stay."""
    job = stage.job
    if "checkpoint_policy" not in job.unstated:
        return []
    fewest = instants_of(replace(job, activation_checkpointing="offload"), stage.whole, stage)[0]
    least = [*micro_phases(plan, fixed, fewest), *(phase for phase in phases if phase.name not in MICRO_STEP)]
    less = max(phase.allocated for phase in phases) - max(phase.allocated for phase in least)
    note = "modules are made again or offloaded one by one, which is not counted, only bounded by whole layers"
    return [Assumption("checkpoint_policy", str(job.checkpoint_policy), note, less, 0)] if less > 0 else []


def _kept_logits(stage: Stage) -> list[Assumption]:
    if not stage.last or not stage.job.evaluation.micro_batch_size:
        return []
    from .evaluation import further_logits

    return uncertainty.kept_logits(stage.job, further_logits(stage.job, stage.whole))


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
            if peak.name == "optimizer_step":
                what = "what a backward pass leaves until the next forward pass"
            lines.append(Term(name, f"{size:,} B", size, "estimator/activations.py", what))
    handles, each = runtime.workspaces(job, gpu)
    workspaces = handles * each, runtime.WORKSPACE, "cuBLAS workspaces, one a thread"
    return [*lines, Term("buffers", f"{handles} x {each:,} B", *workspaces)]
