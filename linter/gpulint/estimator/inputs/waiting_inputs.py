"""Images of micro batches that wait on the GPU for their turn, and to the end of the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream import nemo_automodel, verl
from ...upstream.stack import Stack
from ...upstream.transformers import STEP_BATCHES_AT_ONCE
from ..frameworks.frameworks import of_transformers
from .image_inputs import image_inputs

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.model import Model


def of_trainer(job: Job) -> bool:
    """Whether Transformers' Trainer runs the steps, or one made of it (TRL, LLaMA-Factory, axolotl, ms-swift)."""
    stack = Stack(job)
    return of_transformers(job) and not (stack.does(nemo_automodel.BATCHES_IN_TURN) or stack.does(verl.BATCHES_IN_TURN))


def waiting(job: Job, model: Model, sequences: int) -> tuple[int, int]:
    """Bytes of the pixels of a micro batch of `sequences`, and of those of the others of its step.

    4 b images pixels, and 8 bytes for every pixel of a mask; the optimizer steps beside all of them.
    """
    found = image_inputs(job, model, sequences) if sequences else None
    if found is None or not of_trainer(job):
        return 0, 0
    size = found.images * (4 * found.pixels + 8 * found.masked)
    # accelerate's loader has put them on the GPU by then (data_loader.py `__iter__`)
    others = job.gradient_accumulation_steps - 1 if Stack(job).does(STEP_BATCHES_AT_ONCE) else 0
    return size, size * max(0, others)
