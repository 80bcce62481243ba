"""Which tensors Megatron's optimizer makes its states of: a rank's slice of each bucket of the gradient buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..states import optimizer
from ..states.ranks import Ranks, ranks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ...job.job import Job
    from ..states.parameter import Parameter

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
        for size in _slices(reversed([*_tensors(mine)]), over.experts if experts else over.dense):
            pieces[size] = pieces.get(size, 0) + 1
    made = [optimizer.Item((size,), count, "float32", flat=True) for size, count in pieces.items()]
    return optimizer.state_blocks(made, optimizer.of_job(job), job)


def _tensors(items: Sequence[Parameter]) -> Iterator[int]:
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
