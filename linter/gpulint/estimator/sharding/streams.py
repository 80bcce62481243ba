"""FSDP around the replayed computation: what it asks of the computation's blocks, and of other streams'.

A block belongs to the stream that asked for it, and serves no other (aten c10/cuda/CUDACachingAllocator.cpp). The
streams are those of torch 2.13 distributed/fsdp/_runtime_utils.py (version 1) and _fully_shard/_fsdp_collectives.py
(version 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...estimator import budget
from ...upstream.stack import Stack
from ...upstream.torch import COPIES_IN, LAUNCHES_ON_CALLER
from ..allocator.allocator import SMALL_REQUEST, segments
from ..states import optimizer
from ..states.parameter import Ranks, ranks
from ..states.parameters import gathered_dtype
from ..states.storage import dtype_bytes
from .fsdp import group

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ...job.job import Job
    from ..allocator.allocator import Allocator
    from ..states.parameter import Parameter
    from .fsdp_state import FsdpState
    from .fsdp_units import Unit, Units


IN_FLIGHT = 2
"""Units whose end the host does not wait for: `_FreeEventQueue._max_num_inflight_all_gathers` of version 1."""


class Sharding(NamedTuple):
    """What the replay needs of an FSDP run.

    plan       the units;  version  1 or 2
    root, layer    bytes of the gathered tensors of the root and of the largest layer;  each  of every layer, where
                   they stay
    stays      gathered layers stay from forward to backward;  last  only the last one does
    copies     the reduction's input is among the computation's blocks (version 2)
    other      bytes reserved by the other streams
    later      bytes that they may have besides, where the computation ends a unit later than is counted
    """

    plan: Units
    version: int
    root: list[int]
    layer: list[int]
    stays: bool
    copies: bool
    other: int
    later: int = 0
    last: bool = False
    each: Sequence[list[int]] = ()


def sharding(job: Job, state: FsdpState, found: Sequence[Parameter]) -> Sharding | None:
    """The Sharding of a run whose layers are units of their own and are reduced in every micro step, else None.

    None too for version 2 with offload, whose copies from main memory are not followed, and where layers are one and
    the same, whose unit is not taken anew for each.

    Other streams, version 1: the all-gather's, which has the root, the unit in use, the one before, whose end the
    computation has not reached yet, and in backward the prefetched one, since `record_stream` holds what it frees until
    then; the one before it, which has shards that come from main memory or are made narrower to be gathered
    (`pre_unshard`); the reduction's, which has a copy of a whole gradient in the reduced dtype where that is another,
    and before `LAUNCHES_ON_CALLER` those of the units by which the host is ahead.
    Version 2: flat all-gather buffers, of which one waits for the next (`AllGatherState`), and the reduction's input
    before `COPIES_IN`.
    """
    fsdp, plan = job.parallelism.fsdp, state.units
    if fsdp is None or plan is None or not plan.blocks or state.deferred or 0 < state.gathered_share < 1:
        return None
    if state.reused or (fsdp.version == 2 and fsdp.offload):
        return None
    root, layer, stays = plan.root, plan.block, state.gathered_share == 1
    if fsdp.version == 2:
        copies = Stack(job).does(COPIES_IN)
        other = max(root.gathered, plan.first.gathered, plan.last.gathered, layer.gathered) + layer.gathered
        other += 0 if copies else _in_turn(layer.reduced, root.reduced)
        last = state.fsdp.keeps_last_layer_gathered and not stays
        outside, layers = _tensors(job, found)
        largest = max(layers, key=sum, default=[])
        return Sharding(plan, 2, outside, largest, stays, copies, other, last=last, each=layers if stays else ())
    units = IN_FLIGHT + 1 if state.prefetches else IN_FLIGHT
    first, then = (unit.reduced if unit.reduced != unit.gradients else 0 for unit in (layer, root))
    gathered = sum(map(segments, plan.sizes)) if stays else units * segments(layer.gathered)
    other = segments(root.gathered) + gathered + _in_turn(first, then)
    if not Stack(job).does(LAUNCHES_ON_CALLER):
        other += IN_FLIGHT * segments(first)
    if fsdp.offload or gathered_dtype(job) not in (None, job.weights.dtype):
        over = ranks(job, group(job, fsdp)).dense
        other += max(segments(root.gathered // over), IN_FLIGHT * segments(layer.gathered // over))
    later = segments(layer.gathered) if units == IN_FLIGHT and not stays else 0
    return Sharding(plan, 1, [], [], stays, False, other, later)


def _in_turn(first: int, then: int) -> int:
    """Bytes reserved for a block and, once it is free, for another."""
    return segments(first) + (segments(then) if then > first else 0)


def _tensors(job: Job, found: Sequence[Parameter]) -> tuple[list[int], list[list[int]]]:
    """Bytes of each gathered tensor: of what lies outside the layers, and of each layer."""
    width = dtype_bytes(name) if (name := gathered_dtype(job)) else None
    layers: dict[int | None, list[int]] = {}
    for item in found:
        if item.part == "buffer":
            continue
        size = item.pieces[0] if item.packed else int(item.size * (width or dtype_bytes(item.dtype)))
        for layer in item.layers or (None,):
            layers.setdefault(layer, []).append(size)
    outside = layers.pop(None, [])
    return outside, [layers[layer] for layer in sorted(layers, key=lambda layer: layer or 0)]


class Gathering:
    """One micro step's units in the blocks of the computation."""

    def __init__(self, memory: Allocator, how: Sharding) -> None:
        self.memory, self.how = memory, how
        self.unit: list[int] = []
        self.kept: list[list[int]] = []
        self.last: list[int] = []
        self.ahead = how.plan.blocks
        self.graded: list[int] = []
        self.outside: list[int] = []
        self.pending: list[list[int]] = []
        self.inside = self.backward = False
        self.root = self._take(how.root)

    def before(self, *, backward: bool) -> None:
        """A layer is gathered, unless it stayed."""
        self.inside, self.backward = True, backward
        if backward and self.last:
            self.unit, self.last = self.last, []
        elif not (backward and self.how.stays):
            here = self.how.plan.blocks - self.ahead
            self.unit = self._take(self.how.each[here] if here < len(self.how.each) else self.how.layer)

    def after(self) -> None:
        """A layer is freed; in backward its gradients are handed to the reduction."""
        self.inside = False
        self.ahead -= 1
        if self.how.stays and not self.backward:
            self.kept.append(self.unit)
        elif self.how.last and self.ahead == 0:
            self.last = self.unit
        else:
            self._give(self.unit if not self.how.stays else self.kept.pop() if self.kept else [])
        self.unit = []
        if self.backward:
            self._reduce(self.how.plan.block, self.graded)
            self.graded = []

    def handed(self, block: int) -> None:
        """A gradient is complete: it waits for the others of its unit."""
        (self.graded if self.inside else self.outside).append(block)

    def close(self) -> None:
        """The end of the pass: the root is reduced and freed, and the host waits for all streams."""
        self._reduce(self.how.plan.root, self.outside)
        self.outside = []
        for blocks in [self.root, self.graded, *self.kept, *self.pending]:
            self._give(blocks)
        self.pending = []

    def _reduce(self, unit: Unit, gradients: list[int]) -> None:
        """Version 1: SplitBackward makes one gradient of them all, and `record_stream` holds it until it is reduced.

        By then the host is IN_FLIGHT units ahead. Version 2: the input of the reduce-scatter, in place of the one
        before.
        """
        if not unit.graded:
            self._give(gradients)
            return
        if self.how.version == 1:
            flat = self._take([unit.gradients])
            self._give(gradients)
            self.pending.append(flat)
            while len(self.pending) > IN_FLIGHT:
                self._give(self.pending.pop(0))
            return
        while self.pending:
            self._give(self.pending.pop(0))
        if self.how.copies:
            self.pending.append(self._take([unit.reduced]))
        self._give(gradients)

    def _take(self, sizes: Iterable[int]) -> list[int]:
        blocks = [self.memory.take(size) for size in sizes if size > SMALL_REQUEST]
        budget.spend(2 * len(blocks))
        return blocks

    def _give(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self.memory.give(block)


BUCKET, BUCKET_OF_A_RANK = 40_000_000, 1_000_000
"""Elements of a bucket: the larger of one and of the other times the data parallel ranks."""

_FUSED = {"q": "qkv", "k": "qkv", "v": "qkv", "gate": "gate_up", "up": "gate_up"}
"""Roles of projections that are one parameter of Megatron's."""


def first_step(job: Job, found: Sequence[Parameter]) -> list[tuple[int, int]]:
    """(bytes, how many) of the states that the first step makes on the first rank; none where the host has them.

    The float32 masters are there from the beginning; Adam's moments are made as zeros like each of them in the first
    step. The distributed optimizer has a master for each parameter that overlaps with the rank's N-th part of a bucket.
    Parameters are put into buckets from the last one on, until one is full.

    Source: Megatron-LM core/distributed/param_and_grad_buffer.py, distributed_data_parallel.py `bucket_size` (with
    `overlap_grad_reduce`; else all are one bucket), core/optimizer/distrib_optimizer.py
    `_build_model_and_main_param_groups`; apex and Transformer Engine FusedAdam, core 0.14.
    """
    zero = job.parallelism.zero
    if zero is None or zero.offload_optimizer.device != "none":
        return []
    trained = [item for item in found if item.trainable]
    over = ranks(job, max(1, job.data_parallel // max(1, zero.replicas))) if zero.stage else Ranks(1, 1)
    pieces: dict[int, int] = {}
    for experts in (False, True):
        mine = [item for item in trained if item.role.startswith("expert_") is experts]
        for size in _slices(reversed([*_unit_tensors(mine)]), over.experts if experts else over.dense):
            pieces[size] = pieces.get(size, 0) + 1
    made = [optimizer.Item((size,), count, "float32", flat=True) for size, count in pieces.items()]
    return optimizer.state_blocks(made, optimizer.of_job(job), job)


def _unit_tensors(items: Sequence[Parameter]) -> Iterator[int]:
    """Elements of each parameter in the order of the model, fused projections as one."""
    layered = [item for item in items if item.layers]
    first = items.index(layered[0]) if layered else len(items)
    outside = [item for item in items[first:] if not item.layers]
    yield from (item.size for item in items[:first])
    for layer in sorted({layer for item in layered for layer in item.layers or ()}):
        fused: dict[str, int] = {}
        for item in layered:
            if layer in (item.layers or ()):
                name = _FUSED.get(item.role, item.name)
                fused[name] = fused.get(name, 0) + item.size * item.copies // len(item.layers or (0,))
        yield from fused.values()
    yield from (item.size for item in outside)


def _slices(sizes: Iterable[int], over: int) -> Iterator[int]:
    """Elements of each parameter in the first of `over` parts of each bucket."""
    limit = max(BUCKET, BUCKET_OF_A_RANK * over)
    bucket: list[int] = []
    for size in sizes:
        bucket.append(size)
        if sum(bucket) >= limit:
            yield from _first(bucket, over)
            bucket = []
    yield from _first(bucket, over)


def _first(bucket: Sequence[int], over: int) -> Iterator[int]:
    left = -(-sum(bucket) // over)
    for size in bucket:
        if left <= 0:
            return
        yield min(size, left)
        left -= size
