"""What torch's allocator adds to the weights that vLLM or SGLang makes, tensor by tensor, on an empty GPU.

A tensor of 10 MiB or more opens a segment rounded up to 2 MiB, and what is left of it is split off only where it is
more than 1 MiB; else the tensor's block has it, and torch counts it as allocated. vLLM makes queries, keys and values
one tensor, gate and up another, and all of a layer's experts two (vllm/model_executor/layers/linear.py
QKVParallelLinear, MergedColumnParallelLinear; layers/fused_moe/layer.py).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from ...allocator.allocator import Allocator
from ...states.parameter import stacks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...allocator.allocator import Policy
    from ...states.parameter import Parameter

SOURCE = "c10/cuda/CUDACachingAllocator.cpp should_split; vllm/model_executor/layers/linear.py"
OFFLOAD_SOURCE = "vllm model_executor/models/utils.py maybe_offload_to_cpu"

_MERGED = {"q": "qkv", "k": "qkv", "v": "qkv", "gate": "gate_up", "up": "gate_up"} | {
    "shared_gate": "shared_gate_up",
    "shared_up": "shared_gate_up",
}


def block_rounding(found: Iterable[Parameter], rules: Policy, offload: int = 0) -> int:
    """Bytes of the weights' blocks above the bytes of the weights, in the order in which the layers are made.

    The layers' first tensors, until they reach `offload` bytes, keep no block.
    """
    return _rounding(tuple(found), rules, offload)[0]


def segment_rounding(found: Iterable[Parameter], rules: Policy, offload: int = 0) -> int:
    """Bytes of the weights' segments above the bytes of the weights: what the driver gave for them."""
    return _rounding(tuple(found), rules, offload)[1]


def offloaded(found: Iterable[Parameter], limit: int) -> int:
    """Bytes that `cpu_offload_gb` moves to main memory: the layers' first tensors that together reach `limit`.

    The last one is moved whole, so more than the limit may go; less where the layers hold less. Embedding, head and
    vision tower are never moved. Source: vllm model_executor/models/utils.py `maybe_offload_to_cpu`, `make_layers`;
    sglang srt/utils.py has the same.
    """
    return sum(_split(found, limit)[0])


def offloaded_layers(found: Iterable[Parameter], limit: int) -> tuple[int, int]:
    """In how many layers `cpu_offload_gb` moves the first tensor, and the most bytes that it moves of one."""
    count = most = moved = 0
    for layered, sizes in _made(found):
        if not layered or moved >= limit:
            continue
        before = moved
        for size in sizes:
            moved += size if moved < limit else 0
        count, most = count + 1, max(most, moved - before)
    return count, most


@lru_cache(maxsize=64)
def _rounding(found: tuple[Parameter, ...], rules: Policy, offload: int) -> tuple[int, int]:
    memory = Allocator(policy=rules)
    sizes = _split(found, offload)[1]
    for size in sizes:
        memory.take(size)
    return memory.allocated - sum(sizes), memory.reserved - sum(sizes)


def _split(found: Iterable[Parameter], limit: int) -> tuple[list[int], list[int]]:
    """Bytes of each tensor that goes, and of each that stays."""
    gone: list[int] = []
    kept: list[int] = []
    moved = 0
    for layered, sizes in _made(found):
        for size in sizes:
            goes = layered and moved < limit
            moved += size if goes else 0
            (gone if goes else kept).append(size)
    return gone, kept


def _made(found: Iterable[Parameter]) -> Iterator[tuple[bool, list[int]]]:
    """The tensors of each layer, in the order in which they are made: whether it is a decoder's, and their bytes."""
    for stack in stacks(found):
        layered = stack[0].layers is not None and stack[0].part == "base" and "vis" not in stack[0].name
        for index in sorted({layer for item in stack for layer in item.layers or (0,)}):
            yield layered, _tensors(item for item in stack if index in (item.layers or (0,)))


def _tensors(items: Iterable[Parameter]) -> list[int]:
    """Bytes of each tensor of a layer, in order: the first pieces of merged projections as one, others as they are."""
    sizes: list[int] = []
    merged: dict[str, int] = {}
    for item in items:
        kind = _MERGED.get(item.role)
        apart = item.pieces
        if kind is not None and apart:
            if kind in merged:
                sizes[merged[kind]] += apart[0]
            else:
                merged[kind] = len(sizes)
                sizes.append(apart[0])
            apart = apart[1:]
        sizes += apart
    return sizes
