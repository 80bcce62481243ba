"""Writing a whole checkpoint of a sharded run: a unit at a time on the GPUs, all of it in one rank's main memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..states.storage import dtype_bytes
from ..terms import Term, line, total
from .fsdp_units import Policy, units

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...job.job import Job
    from ...models.model import Model
    from ..states.parameter import Parameter


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
