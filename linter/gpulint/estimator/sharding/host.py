"""Main memory of one machine: loading, what ZeRO and FSDP offload to it, and paged optimizer states.

Counted are tensors that a rank holds in anonymous or page-locked memory. Not counted: the interpreter and its
libraries, data loaders, and the page cache behind mapped safetensors files, which the kernel takes back when it must.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..estimate import HostMemory
from ..states.loading import PACKED_ON_LOAD
from ..states.parameter import per_node
from ..states.parameters import base_dtype
from ..states.quantization import effective_quantization
from ..states.storage import dtype_bytes
from ..terms import Term, line, total
from .fsdp_units import Policy, units

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


class Saving(NamedTuple):
    """What is gathered on each GPU at once, and what is put together in main memory of the rank that writes."""

    device: tuple[Term, ...] = ()
    terms: tuple[Term, ...] = ()

    @property
    def host(self) -> int:
        """Bytes of main memory."""
        return total(self.terms)


def saving(job: Job, model: Model, found: Sequence[Parameter]) -> Saving:
    """The gathered state of a whole checkpoint; nothing where each rank writes its shard.

    FSDP 1, FULL_STATE_DICT: the root stays gathered, in the dtype of the shards, while one wrapped unit after the other
    is gathered and copied to the main memory of rank 0 (torch 2.13 distributed/fsdp/_state_dict_utils.py; accelerate
    1.13 sets `offload_to_cpu` and `rank0_only`). FSDP 2: one tensor after the other (`full_tensor`, accelerate
    Accelerator.get_state_dict). ZeRO-3 with `gather_16bit_weights_on_save`: one module's parameters after the other
    (deepspeed 0.18.2 runtime/engine.py `_zero3_consolidated_16bit_state_dict`).
    """
    plan = job.parallelism
    kept = [item for item in found if item.part != "buffer"]
    whole = sum(item.raw for item in kept)
    largest = max((sum(item.pieces) for item in kept), default=0)
    if plan.fsdp is not None and plan.fsdp.sharding != "no_shard" and _full(plan.fsdp.state_dict_type):
        if plan.fsdp.version == 2:
            return _made(largest, whole, "the largest tensor, whole", "accelerate 1.13 Accelerator.get_state_dict")
        found_units = units(plan.fsdp, model, kept, Policy(None, None))
        size = found_units.root.gathered + found_units.block.gathered
        return _made(size, whole, "root and one unit, whole", "torch 2.13 fsdp/_state_dict_utils.py")
    if plan.zero is not None and plan.zero.stage == 3 and plan.zero.gather_16bit_weights_on_save:
        half = int(sum(item.elements * min(2, dtype_bytes(item.dtype)) for item in kept))
        return _made(largest, half, "the largest module, whole", "_zero3_consolidated_16bit_state_dict")
    return Saving()


def _full(kind: str | None) -> bool:
    return kind is not None and kind.upper().startswith("FULL")


def _made(device: int, host: int, what: str, source: str) -> Saving:
    whole = line("host", host, "the whole model on the rank that writes it, while saving", source)
    return Saving((line("buffers", device, what, source),) if device else (), (whole,))
