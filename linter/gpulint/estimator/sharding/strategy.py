"""Who divides the state of a training job: nobody (one GPU, DDP), ZeRO, a flat gradient buffer, or FSDP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..states import optimizer
from ..states.buffers.torchtune import template
from ..states.gradients import accumulating, gradient_bytes, gradients, largest_gradient
from ..states.loading import loading_terms
from ..states.optimizer_step import step_terms
from ..states.parameters import elements, parameters
from ..states.ranks import per_node
from ..states.weights import weights
from ..terms import Term, line
from .one_process import replicated
from .sharded_state import ShardedState, own

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...job.job import Job
    from ...models.model import Model
    from ..states.parameter import Parameter


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


_BUCKETS = "torch.nn.parallel.DistributedDataParallel: gradient_as_bucket_view is off by default"


def replicated_state(job: Job, found: tuple[Parameter, ...]) -> ShardedState:
    """One GPU, or data parallelism, where each rank holds everything.

    Weights, gradients and states per tensor in 512-byte blocks. DDP keeps flat gradient buckets from construction
    on; the parameters' gradients stay separate tensors unless `gradient_as_bucket_view` is set, whose saving is
    "equal to the total gradients size" (torch.nn.parallel.DistributedDataParallel, torch 2.13; accelerate's default
    is off). DataParallel sums the gradients of all GPUs into new tensors when a pass ends (one_process.py). Separate
    fp32 masters (Megatron, apex) add 4 B a trainable element to the optimizer.
    """
    trained = [item for item in found if item.trainable]
    spec = optimizer.of_job(job)
    tensors = optimizer.items(trained)
    masters = 0
    if job.precision.master_weights:
        masters = sum(item.copies * 4 * item.size for item in trained)
        tensors = [item._replace(dtype="float32") for item in tensors]
    states = optimizer.states(tensors, spec, job)
    state = ShardedState(
        resident=[*weights(found), *optimizer.state_terms(tensors, spec, states, job, masters)],
        all_gradients=gradients(trained, job),
        step_temporaries=step_terms(tensors, spec, job.optimizer.name),
        loading=loading_terms(found, job),
        paged=states.paged,
        host=per_node(job) * (states.host + states.paged),
        trainable=elements(trained),
        largest_gradient=largest_gradient(trained, job),
        first=_copied(trained, "head", job),
        last=_copied(trained, "embedding", job),
        accumulating=accumulating(job),
        in_backward=spec.in_backward,
    )
    if replicated(job):
        state.dp_reduce_buffer = state.gradients
    elif job.data_parallel > 1 and not spec.in_backward:
        label = "all gradients once more in DDP's buckets"
        state.step_buffers.append(line("buffers", state.gradients, label, _BUCKETS))
    return state


def _copied(trained: Sequence[Parameter], role: str, job: Job) -> tuple[int, int]:
    """Elements and bytes of the gradients of a module that PEFT saves: of 16 bits beside those of float32 adapters."""
    found = [item for item in trained if item.part == "copy" and item.role == role]
    return elements(found), gradient_bytes(found, job)
