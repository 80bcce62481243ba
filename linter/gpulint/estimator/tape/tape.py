"""A tape of tensors: what PyTorch's eager autograd keeps alive, replayed on sizes alone.

A `Tensor` here is a size and a storage; the layers of `layers/` are written over it as the modelling code of
Transformers is written over torch. A storage lives exactly as long as something refers to it: a local variable of
the layer, a backward function that saved it, a gradient waiting in the engine. That is CPython's reference count in
torch too, so a layer's temporaries die here where they die there. What is recorded is run backward by autograd.py.

Sizes are bytes; `e` is bytes per element (4 for float32, 2 for 16-bit, 1 for bool, 8 for int64).
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

from .autograd import Engine, trailing
from .labels import labelled
from .options import Packed
from .tensor import Edge, Node, Parameter, Storage, Tensor, saved_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import Self

    from .options import Options
    from .tensor import Backward, Operand


class Tape(Engine):
    """The graph that backward will run, as operations record it.

    `others` are autocast's copies of weights of layers that are not replayed. `bare`: adapters are disabled.
    `returned` are the probabilities that eager attention hands back, where the layer's code has a name for them;
    `given_back` those of a layer that is run again.
    `left` are bytes of logits that the training loop names when the backward pass is through.
    `keys` are the keys and values that a pass returns with its outputs, by segment; None where it returns none.
    """

    storage = Storage

    def __init__(self) -> None:
        super().__init__()
        self.recording = True
        self.autocast = 0
        self.operands = 0
        self.packed = Packed()
        self.lasting: dict[int, int] = {}
        self.inputs_of_softmax = False
        self.loss_parallel = False
        self.attention_again = False
        self.caching = False
        self.keys: dict[int, list[Tensor]] | None = None
        self.muted = False
        self.returned: Storage | None = None
        self.given_back: Storage | None = None
        self._saved = 0
        self._stop: int | None = None
        self.pinned: dict[int, int] = {}
        self.left = 0
        self._pins: list[Backward] = []
        self._lasting: list[Storage] = []
        self._second: list[object] | None = None
        self._seq = 0
        self._tracing = False
        self._recomputing = False
        self._kept: list[Storage] | None = None
        self._outputs: list[Tensor] | None = None
        self._products: int | None = None
        self._reduced = False
        self._casts: list[Parameter] = []
        self.others: Tensor | None = None
        self.bare = False
        self.nothing = Storage(self, 0, False)

    def configured(self, options: Options) -> Self:
        """The tape itself, under a job's autocast and accumulation."""
        for name, value in options._asdict().items():
            setattr(self, name, value)
        return self

    @property
    def nodes(self) -> int:
        """How many operations were recorded."""
        return self._seq

    @property
    def again(self) -> bool:
        """Whether a checkpointed layer is being run again."""
        return self._recomputing

    def new(self, n: int, e: int, logits: bool = False) -> Tensor:
        """A fresh tensor of `n` elements of `e` bytes."""
        size = n * e if self._stop is None or self._saved < self._stop else 0
        self.live += size
        if logits:
            self.logits += size
        if self.live > self._peak:
            self._peak = self.live
            self._peak_logits = self.logits
        return Tensor(self.storage(self, size, logits), n, e)

    def begins_with(self, storages: Iterable[Storage]) -> None:
        """What a micro step finds that the one before has left: nothing of it is there in the first."""

    def ends_with(self, storages: Iterable[Storage]) -> None:
        """What it leaves to the next one."""

    def operand(self, x: Tensor) -> Storage:
        """What a product saves of x: x itself, or one copy of `operands` bytes an element for all that read x."""
        if not self.operands or x.e <= self.operands:
            return x.storage
        found = x.storage.narrow() if x.storage.narrow is not None else None
        if found is None:
            found = self.new(x.n, self.operands).storage
            x.storage.narrow = ref(found)
        return found

    def ends(self, recorded: bool) -> bool:
        """Whether a recomputation stops at an operation before its output is made, since its inputs are saved first.

        Inputs are saved before the operation runs, outputs behind it (torch/csrc/autograd VariableType, `SavedVariable`
        before the redispatch); `recorded`: whether the operation gets a backward function.
        """
        return recorded and self._stop is not None and self._saved + 1 == self._stop

    def result(self, n: int, e: int, recorded: bool) -> Tensor:
        """The output of an operation that saves nothing but its inputs; none where a recomputation stops at it."""
        return Tensor(self.nothing, n, e) if self.ends(recorded) else self.new(n, e)

    def kernel_output(self, n: int, e: int) -> Tensor:
        """The output of an attention kernel, which a selective checkpoint keeps."""
        return self.new(n, e) if self.attention_again else self._stored(n, e)

    def reduced(self, n: int, e: int) -> Tensor:
        """This rank's part of a sum over ranks, which a policy by operator keeps (torchtitan `_op_sac_save_list`)."""
        self._reduced = True
        return self.new(n, e) if self._products is None else self._stored(n, e)

    def _stored(self, n: int, e: int) -> Tensor:
        """A fresh tensor that a selective checkpoint keeps instead of making it again."""
        if self._outputs is None:
            return self.new(n, e)
        if self._recomputing:
            return self._outputs.pop(0)
        self._outputs.append(self.new(n, e))
        return Tensor(self._outputs[-1].storage, n, e)

    def cached(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values as a cache holds them, which are counted there; themselves where there is none."""
        if self.keys is not None:
            self.keys.setdefault(self._segment, []).extend((k, v))
        if not self.caching:
            return k, v
        self.store(k.n * k.e + v.n * v.e)
        found = Tensor(self.nothing, k.n, k.e), Tensor(self.nothing, v.n, v.e)
        for x in found:
            x.heads_first = True
        return found

    def store(self, size: int) -> None:
        """From here on the cache holds `size` bytes of this layer, which counts as full before too."""
        if self.caching:
            self._before = max(self._before, self._peak - size)
            self._peak = 0

    def product(self, n: int, e: int) -> Tensor:
        """The output of a matrix product; the first, third, fifth ... may be kept like those of kernels."""
        if self._products is None:
            return self.new(n, e)
        self._products += 1
        return self._stored(n, e) if self._products % 2 else self.new(n, e)

    def node(
        self, inputs: tuple[Operand, ...], back: Backward, saves: int = 1, slots: int = 1, makes: int = 0
    ) -> Node | None:
        """Record a backward function over `inputs`; None when no input needs a gradient.

        `saves` is 0 for an operation that saves nothing; `makes` is then the bytes of the gradient it makes, 0 when
        it passes on the one it gets. A non-reentrant checkpoint stops recomputing after the last operation that
        saves, and starts when that one's turn comes in backward.
        """
        if self.muted:
            return None
        edges: list[Edge | None] = []
        for x in inputs:
            if x is None:
                edges.append(None)
            elif isinstance(x, Tensor):
                edges.append(None if x.node is None else Edge(x.node, x.slot, x.n, x.e))
            else:
                edges.append(Edge(x, 0, x.n, x.e) if x.trainable else None)
        if not any(edges):
            return None
        self._seq += 1
        if saves:
            self._saved += 1
        if not self.recording:
            node = Node(self._seq, self._segment, tuple(edges) if self._tracing else (), None, 1)
            node.makes = -1 if saves else makes
            return node
        node = Node(self._seq, self._segment, tuple(edges), back, slots)
        node.recomputed = self._recomputing
        return node

    def source(self, x: Tensor) -> None:
        """Make x a leaf that wants a gradient; the graph, which the loss holds to the end, keeps both alive."""
        self._seq += 1
        kept = x.storage

        def back(gradient: Tensor, kept: Storage = kept) -> tuple[()]:
            self._leaves += (kept, gradient.storage)
            return ()

        x.node = Node(self._seq, self._segment, (), back, 1)

    def checkpoint(
        self,
        layer: Callable[[Tensor], Tensor],
        x: Tensor,
        mode: str,
        reentrant: bool = False,
        *,
        sums: bool = False,
        others: tuple[Tensor, ...] = (),
    ) -> Tensor:
        """Run `layer` keeping only its input, and again when backward reaches it.

        `mode` is `full`, `offload` (the input waits in main memory), `attention` (the outputs of attention kernels are
        kept as well) or `every_second_matmul` (those and every second product's, torchtitan activation_checkpoint.py).
        The input, and what `layer` holds beside it (a mask), live until the layer's backward is done. A non-reentrant
        recomputation stops after the last tensor that backward needs; a reentrant one keeps its output too, and where
        the layer hands out its probabilities, those and zeros for the gradient that they never get
        (torch/utils/checkpoint.py `CheckpointFunction`). `sums`: the layer is compiled and only adds the last product's
        output, or its part of a sum over ranks, to something, so that no graph of backward asks for it. `others` get
        gradients from the layer too.
        """
        recording, before = self.recording, self._saved
        self.recording = False
        held: list[Storage] = []
        self._kept = held if recording and not reentrant else None
        self._tracing = recording and not reentrant
        outputs: list[Tensor] | None = [] if mode in ("attention", "every_second_matmul") else None
        first = 0 if mode == "every_second_matmul" else None
        self._outputs, self._products, self._reduced = outputs, first, False
        y = layer(x)
        last = (1 if self._reduced else 0) + (self._products or 0) % 2
        if sums and outputs and self._products is not None and last:
            outputs[-last:] = [Tensor(self.nothing, x.n, x.e) for x in outputs[-last:]]
        self._kept = self._outputs = self._products = None
        saves = self._saved - before
        trail = trailing(y) if self._tracing else 0
        probabilities = self.returned.size if reentrant and recording and self.returned is not None else 0
        self._tracing = False
        self.recording = recording
        if y.node is None or not recording:
            return y
        kept = None if mode == "offload" else x.storage
        n, e, source, slot = x.n, x.e, x.node, x.slot

        def expand() -> Tensor:
            held.clear()
            again = self.new(n, e) if kept is None else Tensor(kept, n, e)
            alive: list[object] = [again.storage, layer]
            if source is not None:
                again.node, again.slot = source, slot
                again.node = self.node((again,), lambda g, _kept=alive: (g,), saves=0)
                again.slot = 0
            self._stop = None if reentrant else self._saved + saves
            self._recomputing = True
            self._second = alive if reentrant else None
            self._outputs, self._products = outputs, first
            alive.append(self.new(probabilities, 1).storage)
            waiting = self.new(trail, 1)
            result = layer(again)
            del waiting
            self._stop = None
            self._recomputing = False
            self._second = None
            self._outputs = self._products = None
            self.clear_casts()
            if reentrant:
                alive += [result.storage, self.given_back]
            self.given_back = None
            return result

        self._seq += 1
        edges = [] if source is None else [Edge(source, slot, n, e)]
        edges += [Edge(other.node, other.slot, other.n, other.e) for other in others if other.node is not None]
        node = Node(self._seq, self._segment, tuple(edges), None, 1)
        node.expand = expand
        y.node = node
        return y

    def pin(self, x: Tensor) -> None:
        """A module keeps x of a layer that is run again, and with it what the graph behind x has saved.

        A non-reentrant checkpoint hands saved tensors to its own graph and to that of the second run, which dies with
        the layer's output (torch/utils/checkpoint.py `_recomputation_hook`) but for what leads to x: those live until
        the module lets go of x. `pinned` are their bytes by segment.
        """
        if not self._recomputing or x.node is None:
            return
        found: dict[int, Storage] = {}
        waiting, known = [x.node], {id(x.node)}
        while waiting:
            node = waiting.pop()
            if node.back is not None:
                self._pins.append(node.back)
                found.update((id(storage), storage) for storage in saved_by(node.back))
            for edge in node.edges:
                if edge is not None and edge.node.recomputed and id(edge.node) not in known:
                    known.add(id(edge.node))
                    waiting.append(edge.node)
        size = sum(storage.size for storage in found.values())
        self.pinned[self._segment] = self.pinned.get(self._segment, 0) + size

    def unpin(self) -> None:
        """The modules let go of what `pin` kept, and the graph, gone with the loss, of what `keep` did."""
        self._pins.clear()
        self._lasting.clear()

    def keep(self, storage: Storage) -> None:
        """What an operation holds outside the saved tensors: backward does not free it, it lives as long as the graph.

        That is to the end of backward, also where the layer is run again without reentry: the second graph, which dies
        with that run, holds nothing. With reentry it is the second graph that has them, until the layer's backward is
        done. `lasting` are the bytes of each segment.
        """
        if self._recomputing:
            if self._second is not None:
                self._second.append(storage)
        elif (self.recording or self._kept is not None) and not storage.lasting:
            storage.lasting = True
            self.lasting[self._segment] = self.lasting.get(self._segment, 0) + storage.size
            self._lasting.append(storage)

    def carry(self, storage: Storage) -> None:
        """An input of a layer beside its hidden states: a non-reentrant checkpoint holds it until its backward."""
        if self._kept is not None:
            self._kept.append(storage)

    @labelled("weight cast by autocast")
    def cast(self, weight: Parameter, e: int) -> Tensor | Parameter:
        """The weight as autocast hands it to a matmul: itself, or a copy that is kept until autocast ends.

        Only float32 leaves that need a gradient are cached (aten/src/ATen/autocast_mode.cpp).
        """
        if weight.e == e or weight.e < e:
            return weight
        if weight.twin is not None:
            weight = weight.twin
            weight.summed = False
        if weight.cast is not None:
            return weight.cast
        copy = self.new(weight.n, e)
        copy.node = self.node((weight,), lambda _: (self.new(weight.n, weight.e),), saves=0)
        if weight.trainable and weight.e == 4:
            weight.cast = copy
            self._casts.append(weight)
        return copy

    def clear_casts(self) -> None:
        """Autocast ends: its copies live on only where they were saved."""
        for weight in self._casts:
            weight.cast = None
        self._casts.clear()
        self.others = None


def tape_of(x: Tensor) -> Tape:
    """The tape that a tensor is on."""
    tape = x.storage.tape
    assert isinstance(tape, Tape)
    return tape
