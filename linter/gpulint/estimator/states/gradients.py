"""Gradients: one for each trainable tensor, in its dtype or the one that the job states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream.stack import Stack
from ...upstream.torch import ZEROED_GRADIENTS
from ..allocator.allocator import block_size
from .storage import dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...job.job import Job
    from .parameter import Parameter


def accumulating(job: Job) -> bool:
    """Whether gradients lie in memory while a micro-batch runs forward.

    Those of the earlier micro-batches of a step; before torch 2.0 those of the last step too, which `zero_grad` fills
    with zeros unless asked to free them (`set_to_none`, torch/optim/optimizer.py and torch/nn/modules/module.py).
    ZeRO and FSDP keep gradients of their own.
    """
    parallel = job.parallelism
    own = parallel.fsdp is not None or parallel.zero is not None
    return job.gradient_accumulation_steps > 1 or (not own and Stack(job).does(ZEROED_GRADIENTS))


def units_reduce(job: Job) -> bool:
    """FSDP makes new gradients of a whole unit beside those that it accumulates."""
    fsdp = job.parallelism.fsdp
    return fsdp is not None and fsdp.sharding != "no_shard"


def gradient_dtype(parameter: Parameter, job: Job) -> str:
    """autograd makes a gradient in the dtype of its leaf; `precision.gradients` overrides (fp32 accumulation)."""
    return job.precision.gradients or parameter.dtype


def gradient_bytes(trained: Sequence[Parameter], job: Job) -> int:
    """Bytes of the gradients of every trainable tensor, each in 512-byte blocks: elements x bytes of the dtype."""
    return sum(item.copies * block_size(int(item.size * dtype_bytes(gradient_dtype(item, job)))) for item in trained)


def largest_gradient(trained: Sequence[Parameter], job: Job) -> int:
    """Bytes of the gradient of the largest trainable tensor."""
    return max((int(item.size * dtype_bytes(gradient_dtype(item, job))) for item in trained), default=0)
