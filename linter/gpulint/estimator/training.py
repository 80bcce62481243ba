"""The memory of a training job: what is alive at each instant of a step, and the largest of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ..models.model import text_config
from . import uncertainty, unknowns
from .allocator import memory_levels, runtime
from .estimate import NOTHING, Assumption, Estimate, NotEstimable, Phase, capacity, verdict
from .inputs.image_inputs import waiting
from .inputs.objectives import objective
from .phases import STEP, evaluation, left_by_forward, loading, marks, micro_phases, micro_step, optimizer_step
from .serving.generation.causal_masks import SOURCE as MASKS
from .serving.generation.causal_masks import causal_masks
from .sharding import host
from .sharding.host import saving
from .sharding.one_process import gathered, replicated
from .sharding.strategy import sharded_state
from .states import low_precision, reference
from .states.buffers import megatron, unsloth
from .states.buffers.stable_embedding import unmade
from .states.imbalance import unbalanced
from .states.loading import warmed
from .states.parameters import base_dtype, parameters, trainable_parameters
from .states.quantization import named_assumption
from .states.stage import pipeline
from .terms import Term, at_least, line, tier
from .unknowns import StageRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..hardware.gpu import Gpu
    from ..job.job import Job
    from ..models.model import Model
    from .estimate import Spread, Tiers
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
    `replay` False leaves the allocator out: `low` and `exceeds` are the same, other tiers are bounds
    (fragmentation.packed).
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
    said = "tight" if over and found.verdict == "fits" else found.verdict
    found = replace(found, verdict=said, as_stated="tight" if over and found.as_stated == "fits" else found.as_stated)
    more = (most if gpu is None or said == "tight" else min(most, gpu.usable)) - found.per_gpu.high
    if more <= 0:
        return found
    note = "no length is stated: the estimate is a lower bound, and rows may be as long as the model's positions"
    if uncut:
        note = "nothing cuts rows to the length that is stated: they may be as long as the model's positions"
    unknown = Assumption("sequence_length", f"up to {longest}" if longest else "any", note, 0, more)
    return replace(found, tiers=found.tiers.widened([unknown]), assumptions=(*found.assumptions, unknown))


def _on_stage(job: Job, model: Model, stage: Stage, gpu: Gpu | None, *, replay: bool, spread: Spread) -> Estimate:
    """The Estimate of the ranks of one pipeline stage."""
    state, tensors = sharded_state(stage.job, stage.own), parameters(stage.job, stage.own)
    state.needs_to_load(warmed(tensors, stage.job, gpu) - state.weights, WARMED, _WARMUP)
    narrow = low_precision.workspace(job, model)
    rows = (job.micro_batch_size or 0) * objective(job).sequences if stage.of == 1 else 0
    pixels, others = waiting(stage.job, stage.whole, rows)
    fixed = [
        *state.resident,
        *reference.frozen_models(stage.job, stage.own),
        *runtime.workspace_terms(job, gpu),
        *_buffers(stage, gpu, narrow.size, others),
    ]
    step = micro_step(stage.job, stage.whole, stage)
    step = step._replace(candidates=(*step.candidates, *(state.later() if step.bounded else ())))
    phases = [
        loading(state, fixed, unmade(tensors)),
        *micro_phases(state, fixed, step),
        optimizer_step(state, fixed, step.left + pixels),
    ]
    if stage.last:
        phases += evaluation(stage, state, fixed)
    if step.bounded and replicated(stage.job):
        phases += gathered(stage.job, stage.whole, [*fixed, *state.gradients_at(0)], left_by_forward(stage))
    written = saving(stage.job, stage.own, tensors)
    if written.device:
        phases.append(Phase("save", (*fixed, *written.device)))
    engine = colocated_engine(job, gpu)
    if engine is not None:
        phases = engine.beside(phases, fixed)
    peak = max(phases, key=lambda phase: phase.allocated)
    offloaded = state.host + host.checkpoints(stage.job, stage.whole)
    main, lines = host.memory(stage.job, stage.own, tensors, offloaded, written.host)
    steps = [phase for phase in marks(phases, state, fixed, step) if phase.name in STEP]
    held = memory_levels.held(stage, gpu, state, phases, steps, bounded=step.bounded, replay=replay)
    overhead = runtime.process_overhead(gpu, job)
    tiers = memory_levels.tiers(gpu, held, overhead, peak, state, step.bounded)
    run = StageRun(job, model, stage, state, fixed, step, phases, peak, tensors, held, replay=replay)
    tiers = _of_experts(tiers, stage, narrow.slack, bounded=step.bounded)
    unknown, counted = unknowns.deciding(run)
    tiers = tiers.widened(unknown)
    as_stated = verdict(uncertainty.lowered(tiers).per_gpu(peak.allocated), gpu, bounded=step.bounded)
    if step.bounded:
        # what fits with rows of the full length does so whatever torch keeps free, since it gives that back first
        if gpu is not None and (spread == "always" or (spread == "doubt" and as_stated == "tight")):
            run = run._replace(held=memory_levels.lengthening(stage, state, held, peak.allocated))
        moving = unknowns.at_run_time(run, counted)
        tiers = tiers.widened(moving).capped(gpu, as_stated)
        unknown += moving
    tiers = uncertainty.lowered(tiers)
    return Estimate(
        kind="training",
        model_id=model.id,
        parameters=model.parameters,
        trainable_parameters=trainable_parameters(job, model),
        tiers=tiers,
        phases=tuple(phases),
        peak=peak,
        verdict=as_stated,
        capacity=capacity(gpu),
        host=offloaded,
        assumptions=(*assumptions(job, model, bounded=step.bounded), *unknown),
        beside=(*overhead.terms, *written.terms, *lines),
        fullest=stage.name if stage.of > 1 else None,
        host_memory=main,
    )


WARMED = "the block that is asked for before the weights are read and cut from it"
_WARMUP = "transformers 4.51 modeling_utils.py caching_allocator_warmup"


def _buffers(stage: Stage, gpu: Gpu | None, narrow: int, images: int) -> list[Term]:
    """Buffers that stand through the run, but for what sharding keeps: masks, operands, an engine's own, images."""
    found = (
        (causal_masks(stage.job, stage.own), "causal masks of all positions", MASKS),
        (
            unsloth.masks(stage.job, stage.own, base_dtype(stage.job, stage.own)),
            "Gemma 2's masks of all positions",
            "estimator/states/buffers/unsloth.py",
        ),
        (narrow, "operands of products in 8 or 4 bits", "estimator/states/low_precision.py"),
        (
            megatron.held(stage.job, stage.own, gpu),
            "Megatron's own buffers",
            "estimator/states/buffers/megatron.py",
        ),
        (images, "images of the step's other micro batches", "estimator/inputs/image_inputs.py"),
    )
    return [line("buffers", size, what, source) for size, what, source in found if size]


def _of_experts(tiers: Tiers, stage: Stage, narrow: int, *, bounded: bool) -> Tiers:
    """With a second share of routed tokens at the most, and at the least without operands in 8 or 4 bits."""
    more = unbalanced(stage.job, stage.own) if bounded else 0
    high = tier("high", (more, "a second share of the routed tokens on the fullest expert rank"))
    low = tier("low", (-narrow, "operands in 8 or 4 bits, which may be gone at the peak"))
    low = at_least("low", (*tiers.low, *low), 0, NOTHING) if narrow else tiers.low
    return tiers._replace(low=low, high=(*tiers.high, *high))


WEIGHTY = (
    "weights.dtype", "weights.quantization.double_quant", "method", "adapter.r", "adapter.targets", "adapter.dtype",
    "adapter.kernels", "precision.autocast", "precision.master_weights", "optimizer.name", "micro_batch_size",
    "sequence_length", "target_length", "packing", "activation_checkpointing", "attention",
    "without_transformer_engine", "loss.kernel", "evaluation.micro_batch_size", "parallelism.data",
    "parallelism.tensor", "parallelism.zero.stage", "parallelism.fsdp.sharding", "parallelism.fsdp.wrap",
    "parallelism.fsdp.version", "rl.vllm_gpu_memory_utilization", "rl.completion_length", "hardware.gpus",
    "versions.transformers", "versions.torch", "versions.vllm", "versions.deepspeed", "versions.unsloth",
)  # fmt: skip
"""Fields whose value moves bytes, most telling first."""


def assumptions(job: Job, model: Model, *, bounded: bool = True) -> tuple[Assumption, ...]:
    """Fields that upstream defaults or nobody set, the unknown model table, and what has no bound."""
    found: list[Assumption] = []
    if not bounded:
        missing = [name for name in ("micro_batch_size", "sequence_length") if not getattr(job, name)]
        note = "nobody states it: only weights, gradients and optimizer states are counted, a lower bound"
        found.extend(Assumption(name, "unknown", note) for name in missing)
    for path in WEIGHTY:
        origin = job.origins.get(path)
        if origin is None or origin.kind not in ("default", "assumed"):
            continue
        value = job.get(path)
        if value is None or value == []:
            continue
        written = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        found.append(Assumption(path, written, origin.note or origin.kind))
    if not model.exact:
        note = f"the architecture {model.model_type} is unknown; its tensors are taken to be llama's"
        found.append(Assumption("model", model.id, note))
    if model.namesake is not None:
        found.append(Assumption("model", model.id, model.namesake))
    named = named_assumption(job, model)
    if named is not None:
        found.append(named)
    found.extend(_optimizer(job))
    return tuple(found)


def _optimizer(job: Job) -> list[Assumption]:
    from .states.optimizer import specification

    if job.kind != "training":
        return []
    found = specification(job.optimizer.name)
    if not found.known or found.exact:
        return []
    note = f"taken for the nearest optimizer whose source was read: {found.source}"
    return [Assumption("optimizer.name", job.optimizer.name, note)]


class Engine(NamedTuple):
    """vLLM's share of a GPU; `sleeps` when it gives it back while the policy is trained, and `alone` when the policy is
    in main memory while it generates.
    """

    share: Term
    sleeps: bool
    alone: bool = False

    def beside(self, phases: list[Phase], fixed: Sequence[Term]) -> list[Phase]:
        """The phases with the engine in them, and one for the generation itself."""
        generation = Phase("generation", (*(() if self.alone else fixed), self.share))
        if self.sleeps:
            return [*phases, generation]
        shared = [phase if phase.name == "load" else phase.plus(self.share) for phase in phases]
        return [*shared, Phase("generation", (*fixed, self.share))]


def colocated_engine(job: Job, gpu: Gpu | None) -> Engine | None:
    """vLLM in colocate mode takes `gpu_memory_utilization` of the total that torch reports: weights, cache and graphs.

    None without it, or where the card is not known. Source: vllm/v1/worker/gpu_worker.py `request_memory`; trl 1.16
    GRPOConfig (`vllm_mode` colocate, `vllm_gpu_memory_utilization` 0.3, `vllm_enable_sleep_mode` False).
    """
    if job.rl.vllm != "colocate" or gpu is None:
        return None
    fraction = job.rl.vllm_gpu_memory_utilization
    if fraction is None:
        return None
    share = int(fraction * gpu.usable)
    formula = f"{fraction:g} x {gpu.usable:,} B of the card for vLLM's weights, cache and graphs"
    term = Term("kv_cache", formula, share, "vllm gpu_worker.py request_memory")
    return Engine(term, job.rl.vllm_sleep, job.rl.policy_offload)
