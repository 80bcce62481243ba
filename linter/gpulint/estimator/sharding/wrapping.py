"""How FSDP 1 comes by its flat parameters: each unit's tensors on the GPU, their flat copy, and the shard that stays.

Source: torch 2.13 distributed/fsdp/_init_utils.py `_init_param_handle_from_module`, _flat_param.py `flatten_tensors`
and `_get_shard`, distributed/utils.py `_sync_params_and_buffers`; torch/csrc/distributed/c10d/comm.cpp
`broadcast_coalesced`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...units import MIB
from ...upstream.stack import Stack
from ..allocator.allocator import SMALL_REQUEST
from ..states.parameter import ranks
from ..states.storage import dtype_bytes
from .fsdp import group
from .fsdp_units import stays_replicated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...job.job import Job
    from ..allocator.allocator import Allocator
    from ..states.parameter import Parameter
    from .fsdp_units import Units

BUCKET = 250 * MIB
"""Bytes of flattened tensors that one broadcast takes (`PARAM_BROADCAST_BUCKET_SIZE`); a tensor is never cut."""

AT_ONCE = 2
"""Broadcasts in flight (`max_in_flight`)."""


class Wrapped(NamedTuple):
    """Bytes of one unit while it is made, in the order in which units are.

    tensors   its parameters;  moved  whether they come to the GPU only then
    buckets   the copies that rank 0's values arrive in
    flat      all of them in one
    kept      the shard of it that stays on the GPU; `flat` on one rank, 0 with offload
    wider     the same once what is trained is made float32
    """

    tensors: tuple[int, ...]
    moved: bool
    buckets: tuple[int, ...]
    flat: int
    kept: int
    wider: int


def wrapping(job: Job, found: Sequence[Parameter], plan: Units | None) -> list[Wrapped]:
    """The units that version 1 makes of the base model: layers, then what lies outside them. Adapters' are small.

    With `sync_module_states`, accelerate's default, each unit's tensors are broadcast in buckets before they are
    flattened. accelerate makes what is trained float32 once all are sharded (accelerator.py 1.13 `prepare_model`).
    """
    fsdp = job.parallelism.fsdp
    if fsdp is None or fsdp.version != 1 or job.parallelism.zero is not None:
        return []
    units: dict[int | str, list[Parameter]] = {}
    alone = plan is not None and bool(plan.first.gathered or plan.last.gathered)
    layered = fsdp.wrap == "transformer" or (plan is not None and plan.blocks > 0)
    for item in found:
        if item.part not in ("base", "copy") or stays_replicated(item, job):
            continue
        inside = (item.layers or ()) if layered else ()
        for layer in inside:
            units.setdefault(layer, []).append(item)
        if item.copies > len(inside):
            outside = item.role if alone and item.role in ("embedding", "head") else "root"
            units.setdefault(outside, []).extend([item] * (item.copies - len(inside)))
    layers = sorted(unit for unit in units if isinstance(unit, int))
    others = [unit for unit in ("embedding", "head", "root") if unit in units]
    return [_wrapped(job, units[unit]) for unit in (*layers, *others)]


def _wrapped(job: Job, items: Sequence[Parameter]) -> Wrapped:
    fsdp = job.parallelism.fsdp
    assert fsdp is not None
    sizes = [_loaded(item, job) for item in items]
    over = ranks(job, group(job, fsdp)).dense
    flat = sum(sizes)
    kept = 0 if fsdp.offload else -(-flat // over)
    widened = sum(item.pieces[0] for item in items)
    quantization = job.weights.quantization
    first = quantization is not None and any(item.packed for item in items) and not fsdp.cpu_ram_efficient_loading
    synced = not Stack(job).native
    return Wrapped(
        tuple(sizes),
        not first,
        tuple(_buckets(sizes)) if synced else (),
        flat,
        kept,
        0 if fsdp.offload else -(-widened // over),
    )


def _loaded(item: Parameter, job: Job) -> int:
    """Bytes of a parameter before accelerate widens it."""
    fsdp, dtype = job.parallelism.fsdp, job.weights.dtype
    if item.packed or fsdp is None or not (fsdp.upcast_trainable and item.trainable) or dtype is None:
        return item.pieces[0]
    return min(item.pieces[0], int(item.size * dtype_bytes(dtype)))


def _buckets(sizes: Sequence[int]) -> list[int]:
    """Sums of neighbours, each closed by the tensor that fills it (reducer.cpp `compute_bucket_assignment_by_size`)."""
    found, filled = [], 0
    for size in sizes:
        filled += size
        if filled >= BUCKET:
            found.append(filled)
            filled = 0
    return [*found, filled] if filled else found


def wrap(memory: Allocator, units: Sequence[Wrapped]) -> None:
    """Make the units one after the other; what they keep stays."""
    waiting = {number: _take(memory, unit.tensors) for number, unit in enumerate(units) if not unit.moved}
    kept: list[tuple[int, Wrapped]] = []
    for number, unit in enumerate(units):
        tensors = waiting.pop(number, None) or _take(memory, unit.tensors)
        flying: list[int] = []
        for size in unit.buckets:
            if len(flying) == AT_ONCE:
                memory.give(flying.pop(0))
            flying += _take(memory, (size,))
        _give(memory, flying)
        flat = _take(memory, (unit.flat,))
        _give(memory, tensors)
        if unit.kept == unit.flat:
            kept += [(block, unit) for block in flat]
            continue
        kept += [(block, unit) for block in _take(memory, (unit.kept,))]
        _give(memory, flat)
    for block, unit in kept:
        if unit.wider > unit.kept:
            memory.take(unit.wider)
            memory.give(block)


def stay(units: Sequence[Wrapped]) -> int:
    """Bytes that `wrap` leaves on the GPU."""
    return sum(max(unit.kept, unit.wider) for unit in units if unit.kept > SMALL_REQUEST)


def _take(memory: Allocator, sizes: Sequence[int]) -> list[int]:
    return [memory.take(size) for size in sizes if size > SMALL_REQUEST]


def _give(memory: Allocator, blocks: Sequence[int]) -> None:
    for block in blocks:
        memory.give(block)
