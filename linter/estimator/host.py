"""Main memory of one machine: what ZeRO and FSDP offload to it, and paged optimizer states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .parameters import base_dtype
from .ranks import per_node
from .storage import dtype_bytes

if TYPE_CHECKING:
    from ..job import Job, Zero
    from ..models.model import Model
    from .optimizer import States


def optimizer(job: Job, share: int, states: States, device: str) -> int:
    """Bytes of ZeRO stage 1 and 2 optimizer offload on one machine.

    Each rank: fp32 master 4 B, fp32 gradient 4 B and a 16-bit copy 2 B of its `share` of elements, and the states.
    On NVMe the master and the states leave main memory but for the swap buffers, which are not counted.
    """
    each = 6 * share if device == "nvme" else 10 * share + states.raw
    return per_node(job) * each


def partitions(job: Job, share: int, states: States, zero: Zero, weights: int) -> int:
    """Bytes of stage 3 offload on one machine: as above for the optimizer, `weights` bytes for the parameters."""
    each = 0.0
    if zero.offload_optimizer.device == "cpu":
        each += zero.offload_optimizer.ratio * (10 * share + states.raw)
    elif zero.offload_optimizer.device == "nvme":
        each += 6 * share
    if zero.offload_parameters.device == "cpu":
        each += weights
    return per_node(job) * int(each)


def sharded(job: Job, weights: int, gradients: int, states: int) -> int:
    """Bytes of FSDP's CPU offload on one machine: the shards of weights and gradients and the optimizer states."""
    return per_node(job) * (weights + gradients + states)


def checkpoints(job: Job, model: Model) -> int:
    """Bytes of offloaded activation checkpoints on one machine: e T h a layer, T = batch x length tokens a rank."""
    if job.activation_checkpointing != "offload" or not job.micro_batch_size or not job.sequence_length:
        return 0
    tokens = job.micro_batch_size * -(-job.sequence_length // job.parallelism.context)
    each = dtype_bytes(job.precision.autocast or base_dtype(job, model))
    return per_node(job) * int(each * tokens * model.shape.hidden * model.shape.layers)
