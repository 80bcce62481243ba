"""Main memory of one machine: loading, what ZeRO and FSDP offload to it, and paged optimizer states.

Counted are tensors that a rank holds in anonymous or page-locked memory. Not counted: the interpreter and its
libraries, data loaders, and the page cache behind mapped safetensors files, which the kernel takes back when it must.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..estimate import HostMemory
from ..states.loading import PACKED_ON_LOAD
from ..states.parameters import base_dtype
from ..states.quantization import effective_quantization
from ..states.ranks import per_node
from ..states.storage import dtype_bytes
from ..terms import Term

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...job.job import Job, Zero
    from ...models.model import Model
    from ..states.optimizer import States
    from ..states.parameter import Parameter


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


def memory(
    job: Job, model: Model, found: Sequence[Parameter], train: int, save: int = 0
) -> tuple[HostMemory, list[Term]]:
    """The main memory of one machine while loading, training (`train` bytes, offloaded) and saving (`save` besides).

    Page-locked tensors are rounded up to a power of two (aten/src/ATen/core/CachingHostAllocator.h `PowerOf2Ceil`), so
    `high` is up to twice what is pinned.
    """
    load, formula, source = _load(job, model, found)
    plan = job.parallelism
    pins = (
        (plan.zero is not None and (plan.zero.offload_optimizer.pin_memory or plan.zero.offload_parameters.pin_memory))
        or (plan.fsdp is not None and plan.fsdp.offload)
        or job.optimizer.states_offloaded_between_steps
    )  # fmt: skip
    pinned = train if pins else 0
    terms = [Term("host", formula, load, source)] if formula else []
    if train:
        each, rest = divmod(train, per_node(job))
        formula = f"{train:,} B" if rest else f"{_ranks(job)} x {each:,} B"
        terms.append(Term("host", formula, train, "", "what is offloaded, while training"))
    return HostMemory(load, train, pinned, train + save if save else 0, max(load, train + pinned + save)), terms


def _load(job: Job, model: Model, found: Sequence[Parameter]) -> tuple[int, str, str]:
    """Bytes, derivation and source of what loading holds in the main memory of one machine.

    Each of a node's n ranks builds the model in main memory and moves it to its GPU: n copies of W bytes. FSDP with
    `cpu_ram_efficient_loading`: one copy on the node's first rank, empty pages on the others. ZeRO-3: `zero.Init`
    divides each tensor as it is made and the checkpoint is mapped, so nothing stays but the partitions; without it each
    rank makes the whole model there. Weights that are packed on loading go to the GPU one at a time, and so do those of
    a packed checkpoint under an adapter.
    """
    base = [item for item in found if item.part == "base"]
    quantization, plan = effective_quantization(job, model), job.parallelism
    if quantization is not None and (job.adapter is not None or quantization.method.startswith(PACKED_ON_LOAD)):
        if plan.fsdp is not None and plan.fsdp.cpu_ram_efficient_loading:
            size = sum(item.raw for item in base)
            return size, f"{size:,} B of packed weights on the first rank of a node", _MODELING
        largest = max((2 * item.size for item in base), default=0)
        return per_node(job) * largest, f"{_ranks(job)} x {largest:,} B of the largest tensor in 16 bits", _MODELING
    if plan.zero is not None and plan.zero.stage == 3 and plan.zero.init:
        return 0, "", ""
    width = dtype_bytes(base_dtype(job, model))
    size = sum(item.raw if item.packed else int(item.elements * width) for item in base)
    if plan.fsdp is not None and plan.fsdp.cpu_ram_efficient_loading:
        return size, f"{size:,} B of weights on the first rank of a node (cpu_ram_efficient_loading)", _MODELING
    return per_node(job) * size, f"{_ranks(job)} x {size:,} B of weights before they are on the GPU", _MODELING


def _ranks(job: Job) -> str:
    count = per_node(job)
    return f"{count} rank" if count == 1 else f"{count} ranks"


_MODELING = "transformers 5.0 modeling_utils.py from_pretrained"
