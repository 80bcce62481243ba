"""Weights, gradients and optimizer states that every rank holds whole: one GPU, or DDP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..explain import derivation
from ..states import optimizer
from ..states.gradients import accumulating, gradient_bytes, largest_gradient
from ..states.loading import loading
from ..states.parameters import allocated, elements
from ..states.ranks import per_node
from .layout import Layout
from .one_process import replicated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...job.job import Job
    from ..states.parameter import Parameter


def whole_layout(job: Job, found: tuple[Parameter, ...]) -> Layout:
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
    gradients = gradient_bytes(trained, job)
    built = Layout(
        weights=allocated(item for item in found if item.part in ("base", "buffer")),
        adapter=allocated(item for item in found if item.part in ("adapter", "copy")),
        optimizer=states.allocated + masters,
        paged=states.paged,
        host=per_node(job) * (states.host + states.paged),
        gradients=gradients,
        trainable=elements(trained),
        largest_gradient=largest_gradient(trained, job),
        first=_copied(trained, "head", job),
        last=_copied(trained, "embedding", job),
        step_optimizer=states.temporary,
        load=loading(found, job),
        accumulating=accumulating(job),
        in_backward=spec.in_backward,
    )
    built.terms = [
        *derivation.weights(found),
        *derivation.gradients(trained, job),
        *derivation.optimizer(tensors, spec, states, job, masters=masters),
    ]
    if replicated(job):
        built.summed = gradients
    elif job.data_parallel > 1 and not spec.in_backward:
        built.buffers = built.step_buffers = gradients
        built.terms.append(derivation.ddp_buckets(gradients))
    return built


def _copied(trained: Sequence[Parameter], role: str, job: Job) -> tuple[int, int]:
    """Elements and bytes of the gradients of a module that PEFT saves: of 16 bits beside those of float32 adapters."""
    found = [item for item in trained if item.part == "copy" and item.role == role]
    return elements(found), gradient_bytes(found, job)
