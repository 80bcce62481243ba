"""Who divides the state of a training job: nobody (one GPU, DDP), ZeRO, a flat gradient buffer, or FSDP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..estimate import Term
from ..states.buffers.torchtune import template
from ..states.parameters import parameters
from ..states.ranks import per_node
from .replicated import whole_layout

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.model import Model
    from .layout import Layout


def layout(job: Job, model: Model) -> Layout:
    """The Layout of a training job on the rank that holds most.

    States that wait in main memory between steps (prime-rl `optim_cpu_offload`, trainer/optim/state_offload.py) come
    to the GPU whole for the step, and leave it behind the first one, too.
    """
    built = _divided(job, model)
    if job.optimizer.between_steps_offloaded and built.optimizer:
        built.visiting, built.optimizer = built.optimizer, 0
        built.host += per_node(job) * built.visiting
        note = "states are on the GPU for the step alone, between steps in main memory"
        built.terms.append(Term("optimizer", note, 0, "prime-rl trainer/optim/state_offload.py"))
    return built


def _divided(job: Job, model: Model) -> Layout:
    zero, fsdp = job.parallelism.zero, job.parallelism.fsdp
    found = parameters(job, model)
    if zero is not None:
        from .gradient_buffer import buffer_layout, buffered

        if buffered(job):
            return buffer_layout(job, found)
    if zero is not None and (zero.stage > 0 or job.precision.master_weights):
        from .zero import zero_layout

        return zero_layout(job, model, found)
    if fsdp is not None and fsdp.sharding != "no_shard":
        from .fsdp import fsdp_layout

        return fsdp_layout(job, model, found)
    built = whole_layout(job, found)
    built.load = max(built.load, template(found, job, model))
    return built
