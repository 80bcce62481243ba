"""The candidate peaks of one micro step, as the pipeline stage that runs it has them."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from .states.parameters import base_dtype, gathered_dtype
from .states.stage import kept_outputs
from .states.storage import dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..job.job import Job
    from ..models.model import Model
    from .activations import Held
    from .peak_candidate import Instant
    from .states.stage import Stage


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
    others = int(prod(in_flight(stage, held)))
    if stage.last:
        waiting, inputs = deferred(stage)
        return item._replace(activations=item.activations + others + inputs, logits=item.logits + waiting)
    if item.layer is None:
        return None
    done = max(0, item.gradient_elements - held.head)
    return item._replace(activations=item.activations + others, gradient_elements=done)


def in_flight(stage: Stage, held: Held) -> tuple[float, int]:
    """How many other micro batches a stage has in flight, and the bytes that each keeps."""
    first = stage.job.parallelism.pipeline_schedule == "gpipe"
    return stage.held - 1, held.all if stage.last and first else held.layers


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
