"""The part of a model that one pipeline stage holds and runs, as a model of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ...upstream.stack import Stack
from ...upstream.torchtitan import KEEPS_STAGE_OUTPUTS
from ..memoize import Recall
from .tensor_parallel import stages

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.model import Model, Shape, Tensor


INDICES = ("sparse_layers", "indexer_layers", "cross_layers")
"""Shape fields that list layer indices."""


class Stage(NamedTuple):
    """What one rank of a pipeline sees.

    job         without the pipeline;  own  the model with this stage's tensors only
    whole       the same with embedding and head, of which a stage between them has neither
    held        micro batches whose activations are alive at once
    """

    number: int
    of: int
    job: Job
    own: Model
    whole: Model
    held: float
    first: bool
    last: bool

    @property
    def name(self) -> str:
        """The rank in words, counted from 0."""
        return f"pipeline stage {self.number} of {self.of}"


def pipeline(job: Job, model: Model) -> list[Stage]:
    """The stages that can hold most: the first, the last, and those between that have more layers than the first.

    Without pipelining the one stage there is. Embedding and positions are on the first stage, final norm and head on
    the last, with a copy of tied embeddings. A stage has ceil(L/p) layers; `first_stage_layers` and
    `last_stage_layers` of the Job are left out of what the others divide (Megatron-LM arguments
    `--decoder-first-pipeline-num-layers`, core/transformer/transformer_block.py `get_num_layers_to_build`).
    """
    count = stages(job)
    if count <= 1:
        return [Stage(0, 1, job, model, model, 1.0, first=True, last=True)]
    sizes = layer_counts(job, model.shape.layers, count)
    chosen = {0, count - 1}
    middle = max(range(count), key=lambda index: (sizes[index], -index))
    if sizes[middle] > sizes[0]:
        chosen.add(middle)
    return [stage(job, model, index) for index in sorted(chosen)]


def layer_counts(job: Job, layers: int, count: int) -> list[int]:
    """Layers of every stage."""
    plan = job.parallelism
    ends = {0: plan.first_stage_layers, count - 1: plan.last_stage_layers}
    stated = {index: size for index, size in ends.items() if size is not None}
    rest = max(0, layers - sum(stated.values()))
    each = -(-rest // max(1, count - len(stated)))
    return [min(layers, stated.get(index, each)) for index in range(count)]


def stage(job: Job, model: Model, index: int) -> Stage:
    """One stage; its layers are numbered from 0.

    DualPipe holds two stages, this one and its mirror image (DeepSeek-V3 report, section 3.2.1).
    """
    count = stages(job)
    sizes = layer_counts(job, model.shape.layers, count)
    chosen = _layers(sizes, index, model.shape.layers)
    first, last = index == 0, index == count - 1
    if job.parallelism.pipeline_schedule == "dualpipe" and index != count - 1 - index:
        chosen = tuple(sorted({*chosen, *_layers(sizes, count - 1 - index, model.shape.layers)}))
        first = last = first or last
    own, whole = _models(model, chosen, first=first, last=last)
    return Stage(
        index,
        count,
        _without_pipeline(job, chosen),
        own,
        whole,
        in_flight(job, index, count),
        first,
        last,
    )


def _layers(sizes: list[int], index: int, layers: int) -> tuple[int, ...]:
    """Stage `index` counted from the end, so that the last stages are full where the layers do not divide evenly."""
    end = layers - sum(sizes[index + 1 :])
    start = max(0, min(end - sizes[index], layers - sizes[index]))
    return tuple(range(start, start + sizes[index]))


def kept_outputs(stage: Stage) -> int:
    """Elements of other micro batches' logits that the last stage of torch's schedules keeps."""
    job, shape = stage.job, stage.whole.shape
    if not (stage.last and stage.of > 1 and Stack(job).does(KEEPS_STAGE_OUTPUTS)):
        return 0
    tokens = (job.micro_batch_size or 0) * (job.sequence_length or 0) // max(1, job.parallelism.context)
    return (_micro_batches(job) - 1) * tokens * -(-shape.vocabulary // job.parallelism.tensor)


def _micro_batches(job: Job) -> int:
    """Micro batches of one pass through the pipeline; outputs are dropped before the next pass begins."""
    return max(1, job.parallelism.microbatches or job.gradient_accumulation_steps)


def _without_pipeline(job: Job, chosen: tuple[int, ...]) -> Job:
    """The job of one stage.

    torch's schedules reduce what FSDP 2 shards behind the last micro batch alone, and gather it again for no other
    (torch 2.9 distributed/pipelining/stage.py `backward_maybe_with_nosync`): they are micro steps without a reduction.
    """
    plan = job.parallelism
    replicas = max(1, job.data_parallel // max(1, plan.context))
    parallelism = replace(plan, pipeline=1, device_map=None, data=replicas)
    changed = replace(job, parallelism=parallelism)
    if plan.pipeline > 1 and (micro := _micro_batches(job)) > 1:
        changed.gradient_accumulation_steps = micro
        if plan.fsdp is not None and plan.fsdp.version == 2:
            parallelism.fsdp = replace(plan.fsdp, sync_each_batch=False, reshard_after_forward=False)
    if job.adapter is not None and job.adapter.layers is not None:
        kept = [chosen.index(layer) for layer in job.adapter.layers if layer in chosen]
        changed.adapter = replace(job.adapter, layers=kept)
    changed.origins = job.origins
    return changed


def _models(model: Model, chosen: tuple[int, ...], *, first: bool, last: bool) -> tuple[Model, Model]:
    """`own` and `whole` of a Stage; the same ones for the same model, by whose identity much is remembered."""

    def cut() -> tuple[Model, Model]:
        whole = _cut_model(model, chosen)
        kept = tuple(t for t in whole.tensors if t.layers is not None or _outside(t, model, first=first, last=last))
        return whole._replace(tensors=kept), whole

    return _known.ask(model, (chosen, first, last), cut)


_known = Recall(64)
"""Stages of models."""


def _cut_model(model: Model, chosen: tuple[int, ...]) -> Model:
    tensors = [_renumbered(tensor, chosen) for tensor in model.tensors]
    kept = tuple(item for item in tensors if item is not None)
    return model._replace(tensors=kept, shape=_cut(model.shape, chosen))


def _renumbered(tensor: Tensor, chosen: tuple[int, ...]) -> Tensor | None:
    if tensor.layers is None:
        return tensor
    layers = tuple(chosen.index(layer) for layer in tensor.layers if layer in chosen)
    return tensor._replace(layers=layers) if layers else None


def _cut(shape: Shape, chosen: tuple[int, ...]) -> Shape:
    changes: dict[str, object] = {"layers": len(chosen)}
    for name, value in shape._asdict().items():
        if name in INDICES:
            changes[name] = tuple(chosen.index(index) for index in value if index in chosen)
        elif isinstance(value, tuple) and len(value) == shape.layers:
            changes[name] = tuple(value[index] for index in chosen)
    return shape._replace(**changes)  # type: ignore[arg-type]


def _outside(tensor: Tensor, model: Model, *, first: bool, last: bool) -> bool:
    """Whether a stage has a tensor that lies outside the layers."""
    if tensor.role in ("embedding", "position"):
        return first or (last and tensor.role == "embedding" and model.shape.tied)
    if tensor.role in ("head", "norm"):
        return last
    return first


def in_flight(job: Job, index: int, count: int) -> float:
    """Micro batches whose activations a stage holds at once, in those of all its layers.

    m micro batches, p stages, stage s counted from 0, v model chunks a rank:
    gpipe         m: all forward passes come first
    1f1b          min(m, p - s): p - s - 1 warm-up passes and the one in hand
    interleaved   min(2(p - s - 1) + (v - 1)p + 1, m v) chunks of 1/v of the layers
    zero_bubble   as 1f1b: ZB-H1 and ZBV move weight gradients into the bubble and keep its peak
    dualpipe      min(m, p + 1), of two stages' layers together: (p + 1) / 2 of each
    One process that spreads a model over its GPUs (`device_map`) runs one batch at a time.
    Source: Megatron-LM core/pipeline_parallel/schedules.py `get_pp_rank_microbatches`; Qi et al. 2023 (zero bubble),
    section 4 and Table 2; DeepSeek-V3 report, Table 2.
    """
    plan = job.parallelism
    if count <= 1 or plan.pipeline <= 1:
        return 1.0
    micro = max(1, plan.microbatches or job.gradient_accumulation_steps)
    chunks = max(1, plan.virtual_stages)
    if plan.pipeline_schedule == "gpipe":
        return float(micro)
    if plan.pipeline_schedule == "dualpipe":
        return min(micro, count + 1) / 2
    if chunks > 1 and plan.pipeline_schedule != "zero_bubble":
        warm = 2 * (count - index - 1) + (chunks - 1) * count
        return min(warm + 1, micro * chunks) / chunks
    return float(min(micro, count - index))
