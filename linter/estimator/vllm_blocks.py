"""What torch's allocator adds to the weights that vLLM or SGLang makes, tensor by tensor, on an empty GPU.

A tensor of 10 MiB or more opens a segment rounded up to 2 MiB, and what is left of it is split off only where it is
more than 1 MiB; else the tensor's block has it, and torch counts it as allocated. vLLM makes queries, keys and values
one tensor, gate and up another, and all of a layer's experts two (vllm/model_executor/layers/linear.py
QKVParallelLinear, MergedColumnParallelLinear; layers/fused_moe/layer.py).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from .allocator import Allocator

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .allocator import Policy
    from .parameter import Parameter

SOURCE = "c10/cuda/CUDACachingAllocator.cpp should_split; vllm/model_executor/layers/linear.py"

_MERGED = {"q": "qkv", "k": "qkv", "v": "qkv", "gate": "gate_up", "up": "gate_up"} | {
    "shared_gate": "shared_gate_up",
    "shared_up": "shared_gate_up",
}


def block_rounding(found: Iterable[Parameter], rules: Policy) -> int:
    """Bytes of the weights' blocks above the bytes of the weights, in the order in which the layers are made."""
    return _rounding(tuple(found), rules)[0]


def segment_rounding(found: Iterable[Parameter], rules: Policy) -> int:
    """Bytes of the weights' segments above the bytes of the weights: what the driver gave for them."""
    return _rounding(tuple(found), rules)[1]


@lru_cache(maxsize=64)
def _rounding(found: tuple[Parameter, ...], rules: Policy) -> tuple[int, int]:
    memory = Allocator(policy=rules)
    requested = 0
    for stack in _stacks(found):
        for index in range(max(item.copies for item in stack)):
            for size in _tensors(item for item in stack if index < item.copies):
                requested += size
                memory.take(size)
    return memory.allocated - requested, memory.reserved - requested


def _stacks(found: Iterable[Parameter]) -> Iterator[list[Parameter]]:
    """Neighbours that lie in layers together, and every other parameter alone."""
    stack: list[Parameter] = []
    for item in found:
        if stack and (item.layers is None or stack[0].layers is None):
            yield stack
            stack = []
        stack.append(item)
    if stack:
        yield stack


def _tensors(items: Iterable[Parameter]) -> list[int]:
    """Bytes of each tensor of a layer: the first pieces of merged projections as one, all other pieces as they are."""
    merged: dict[str, int] = {}
    apart: list[int] = []
    for item in items:
        kind = _MERGED.get(item.role)
        if kind is None or not item.pieces:
            apart += item.pieces
            continue
        merged[kind] = merged.get(kind, 0) + item.pieces[0]
        apart += item.pieces[1:]
    return [*merged.values(), *apart]
