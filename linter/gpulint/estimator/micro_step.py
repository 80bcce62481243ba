"""The candidate peaks of one micro step, as the pipeline stage that runs it has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .states.parameters import base_dtype, gathered_dtype
from .states.stage import kept_outputs
from .states.storage import dtype_bytes
from .terms import Product, Term, line, terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..job.job import Job
    from ..models.model import Model
    from .activations import Held
    from .peak_candidate import PeakCandidate
    from .states.stage import Stage


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


_SCHEDULE = "estimator/states/schedule.py"


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
