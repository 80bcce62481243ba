"""What backward has made of a checkpointed layer's gradient when it first asks for a saved tensor.

A non-reentrant checkpoint runs the layer again when the first saved tensor is unpacked: operations behind the last one
that saves have run by then, and the gradients that they made or passed on wait beside the one that the layer got.
Source: torch 2.13 utils/checkpoint.py `_checkpoint_hook.unpack_hook`, csrc/autograd/engine.cpp.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from .tensor import Parameter

if TYPE_CHECKING:
    from .tensor import Node, Tensor


class Gradient(NamedTuple):
    """A gradient in a node's input buffer: the storage it is in, by number, elements and bytes an element."""

    storage: int
    n: int
    e: int


def trailing(output: Tensor) -> int:
    """Bytes of gradients beside `output`'s own that wait when backward comes to the first operation that saves."""
    if output.node is None:
        return 0
    pending = _pending(output.node)
    sizes = {0: output.n * output.e}
    held: dict[int, list[Gradient]] = {id(output.node): [Gradient(0, output.n, output.e)]}
    ready: list[tuple[int, int, Node]] = [(-output.node.seq, 0, output.node)]
    while ready:
        node = heappop(ready)[2]
        if isinstance(node, Parameter):
            del held[id(node)]
            continue
        if node.makes < 0 or not node.edges:
            break
        gradient = held.pop(id(node))[0]
        for edge in node.edges:
            if edge is None:
                continue
            found = gradient
            if node.makes or gradient.n > edge.n or gradient.e != edge.e:
                found = Gradient(len(sizes), edge.n, edge.e)
                sizes[found.storage] = edge.n * edge.e
            held.setdefault(id(edge.node), []).append(found)
            pending[id(edge.node)] -= 1
            if not pending[id(edge.node)]:
                heappush(ready, (-edge.node.seq, len(sizes), edge.node))
    waiting = {found.storage for each in held.values() for found in each}
    return max(0, sum(sizes[storage] for storage in waiting) - sizes[0])


def _pending(root: Node) -> dict[int, int]:
    """How many gradients every node below `root` gets."""
    found: dict[int, int] = {}
    waiting, known = [root], {id(root)}
    while waiting:
        for edge in waiting.pop().edges:
            if edge is None:
                continue
            found[id(edge.node)] = found.get(id(edge.node), 0) + 1
            if id(edge.node) not in known:
                known.add(id(edge.node))
                waiting.append(edge.node)
    return found
