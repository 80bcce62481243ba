"""Torch's autograd engine over a ledger: the graph below a loss, run backward.

Backward functions run as torch's engine orders them (latest made first, gradients of leaves at once), and gradients are
added in place only where torch may.
Source: torch/csrc/autograd/engine.cpp, input_buffer.cpp, accumulate_grad.cpp (2.13).

What backward has made of a checkpointed layer's gradient when it first asks for a saved tensor.

A non-reentrant checkpoint runs the layer again when the first saved tensor is unpacked: operations behind the last one
that saves have run by then, and the gradients that they made or passed on wait beside the one that the layer got.
Source: torch 2.13 utils/checkpoint.py `_checkpoint_hook.unpack_hook`, csrc/autograd/engine.cpp.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from .ledger import Ledger
from .tensor import Edge, Node, Parameter, Storage, Tensor


class Engine(Ledger):
    """Runs backward.

    `accumulated`: gradients stay from the micro step before, and new ones are added to them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.accumulated = False
        self._leaves: list[Storage] = []

    def new(self, n: int, e: int, logits: bool = False) -> Tensor:
        """A fresh tensor of `n` elements of `e` bytes; the tape makes it."""
        raise NotImplementedError

    def backward(self, root: Tensor, gradient: Tensor) -> None:
        """Run the graph below `root`, whose gradient is handed over."""
        if root.node is None:
            return
        ready: list[tuple[int, Node]] = []
        _count(root.node)
        self.enter(root.node.segment, backward=True)
        self._deliver(root.node, root.slot, gradient)
        heappush(ready, (-root.node.seq, root.node))
        del root, gradient
        while ready:
            node = heappop(ready)[1]
            node.queued = False
            if node.segment != -1 and node.segment != self._segment:
                self.enter(node.segment, backward=True)
            if isinstance(node, Parameter):
                self._accumulate(node)
            elif node.expand is not None:
                self._expand(node, ready)
            else:
                self._run(node, ready)
        self._leaves.clear()

    def _run(self, node: Node, ready: list[tuple[int, Node]]) -> None:
        buffers, node.buffers = node.buffers, None
        assert buffers is not None
        for given in buffers:
            if given is not None:
                given.storage.holders -= 1
        given = None
        assert node.back is not None
        results = list(node.back(*buffers))
        if node.recomputed:
            node.back = None
        self._fit(results, node.edges)
        buffers.clear()
        node.back = None
        for i, edge in enumerate(node.edges):
            if edge is None:
                continue
            other = edge.node
            x, results[i] = results[i], None
            if x is not None:
                self._deliver(other, edge.slot, x)
            x = None
            other.pending -= 1
            if other.pending == 0 and other.buffers is not None and not other.queued:
                other.queued = True
                heappush(ready, (-other.seq, other))
        node.edges = ()

    def _fit(self, results: list[Tensor | None], edges: tuple[Edge | None, ...]) -> None:
        """Gradients summed to the size and cast to the width of what they belong to (engine.cpp validate_outputs)."""
        for i, edge in enumerate(edges):
            x = results[i]
            if edge is None:
                results[i] = None
            elif x is not None:
                if x.n > edge.n:
                    x = self.new(edge.n, x.e)
                if x.e != edge.e:
                    x = self.new(edge.n, edge.e)
                results[i] = x

    def _deliver(self, node: Node, slot: int, gradient: Tensor) -> None:
        """Put a gradient into a node's input buffer; a second one is added, in place where torch owns the first."""
        if node.buffers is None:
            node.buffers = [None] * node.slots
        old = node.buffers[slot]
        if old is None:
            if node.segment == 0:
                self._outside += gradient.storage.size
            node.buffers[slot] = gradient
            gradient.storage.holders += 1
            return
        if old.view or old.storage.holders > 1:
            total = self.new(old.n, old.e)
            total.storage.holders += 1
            old.storage.holders -= 1
            node.buffers[slot] = total

    def _accumulate(self, leaf: Parameter) -> None:
        buffers, leaf.buffers = leaf.buffers, None
        assert buffers is not None
        gradient = buffers.pop()
        assert gradient is not None
        if self.accumulated or leaf.summed:
            return
        self._close()
        storage = gradient.storage
        storage.holders -= 1
        self.live -= storage.size
        storage.size = 0
        self.gradients += leaf.n
        self._peak = self.live

    def _expand(self, node: Node, ready: list[tuple[int, Node]]) -> None:
        assert node.expand is not None
        root = node.expand()
        node.expand = None
        top, slot = root.node, root.slot
        del root
        assert top is not None
        for edge in node.edges:
            if edge is not None:
                edge.node.pending -= 1
        _count(top)
        buffers, node.buffers = node.buffers, None
        assert buffers is not None
        gradient = buffers.pop()
        assert gradient is not None
        gradient.storage.holders -= 1
        self._deliver(top, slot, gradient)
        heappush(ready, (-top.seq, top))


def _count(root: Node) -> None:
    """Count for every node under `root` how many gradients it will get; what was counted before is not gone into."""
    root.counted = True
    stack = [root]
    while stack:
        for edge in stack.pop().edges:
            if edge is not None:
                node = edge.node
                node.pending += 1
                if not node.counted:
                    node.counted = True
                    stack.append(node)


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
