"""Who divides the state of a training job: nobody (one GPU, DDP), ZeRO, a flat gradient buffer, or FSDP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..states.buffers.torchtune import template
from ..states.parameters import parameters
from ..states.ranks import per_node
from ..terms import Term
from .replicated import replicated_state
from .sharded_state import own

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.model import Model
    from .sharded_state import ShardedState


def sharded_state(job: Job, model: Model) -> ShardedState:
    """The state of a training job on the rank that holds most.

    States that wait in main memory between steps (prime-rl `optim_cpu_offload`, trainer/optim/state_offload.py) come
    to the GPU whole for the step, and leave it behind the first one, too.
    """
    state = _divided(job, model)
    if job.optimizer.states_offloaded_between_steps and state.optimizer:
        moved = own("optimizer", state.resident)
        note = "states are on the GPU for the step alone, between steps in main memory"
        state.step_resident_states = [*moved, Term("optimizer", note, 0, "prime-rl trainer/optim/state_offload.py")]
        state.resident = [term for term in state.resident if term not in moved]
        state.host += per_node(job) * sum(term.size for term in moved)
    return state


def _divided(job: Job, model: Model) -> ShardedState:
    zero, fsdp = job.parallelism.zero, job.parallelism.fsdp
    found = parameters(job, model)
    if zero is not None:
        from .gradient_buffer import buffered, grad_buffer_state

        if buffered(job):
            return grad_buffer_state(job, found)
    if zero is not None and zero.stage == 3:
        from .zero3 import zero3_state

        return zero3_state(job, model, found)
    if zero is not None and (zero.stage > 0 or job.precision.master_weights):
        from .zero import zero12_state

        return zero12_state(job, found)
    if fsdp is not None and fsdp.sharding != "no_shard":
        from .fsdp import fsdp_state

        return fsdp_state(job, model, found)
    state = replicated_state(job, found)
    state.needs_to_load(
        template(found, job, model), "the layer that the others are copied from", "torchtune 0.5 modules/transformer.py"
    )
    return state
