"""Weights, gradients and optimizer states that every rank holds whole: one GPU, or DDP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..states import optimizer
from ..states.gradients import accumulating, gradient_bytes, gradients, largest_gradient
from ..states.loading import loading_terms
from ..states.optimizer_step import step_terms
from ..states.parameters import elements
from ..states.ranks import per_node
from ..states.weights import weights
from ..terms import line
from .one_process import replicated
from .sharded_state import ShardedState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...job.job import Job
    from ..states.parameter import Parameter

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
