"""One parameter as a rank holds it."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from . import storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...job.job import Job


class Parameter(NamedTuple):
    """A parameter of the model or of its adapter on one rank, once for all `copies` layers that have it.

    dtype       of its elements; of what a packed weight computes in
    pieces      bytes of the tensors that store one copy
    part        `base`, `adapter`, `copy` (of a module that PEFT trains and saves whole) or `buffer`
    packed      stored by a quantisation method
    layers      the layers of its stack that have it; None outside any stack
    idle        wants a gradient that never comes: its module runs without autograd; not `trainable` here
    swept       frozen, but flattened into one parameter with trained ones, so that its gradient is made all the same
    decay       whether the Trainer puts it in the weight-decay group (not a norm, not a bias)
    """

    name: str
    shape: tuple[int, ...]
    copies: int
    layers: tuple[int, ...] | None
    role: str
    dtype: str
    pieces: tuple[int, ...]
    part: str = "base"
    trainable: bool = False
    packed: bool = False
    swept: bool = False
    idle: bool = False

    @property
    def graded(self) -> bool:
        """Whether autograd makes a gradient of it."""
        return self.trainable or self.swept

    @property
    def size(self) -> int:
        """Elements of one copy."""
        return prod(self.shape)

    @property
    def elements(self) -> int:
        """Elements of all copies."""
        return self.size * self.copies

    @property
    def raw(self) -> int:
        """Bytes of all copies, as the tensors count them."""
        return self.copies * sum(self.pieces)

    @property
    def allocated(self) -> int:
        """Bytes of all copies, as torch's allocator counts them."""
        return self.copies * storage.total(self.pieces)

    @property
    def element_bytes(self) -> float:
        """Bytes of one unpacked element."""
        return storage.dtype_bytes(self.dtype)

    @property
    def decay(self) -> bool:
        """Trainer.get_decay_parameter_names: norms and biases are in the group without weight decay."""
        return self.role not in ("norm", "bias") and not self.name.endswith(".bias")


def pieces_of(shape: tuple[int, ...], dtype: str) -> tuple[int, ...]:
    """The bytes of an unpacked tensor, as the one piece that it is."""
    return (int(prod(shape) * storage.dtype_bytes(dtype)),)


class Ranks(NamedTuple):
    """`dense` ranks share ordinary parameters, `experts` those that expert parallelism divided already.

    `scales`: the scales of packed weights are divided with their codes.
    """

    dense: int
    experts: int
    scales: bool = False

    def of(self, item: Parameter) -> int:
        """The ranks that share `item`."""
        return self.experts if item.role.startswith("expert_") else self.dense

    def elements(self, items: Iterable[Parameter]) -> int:
        """Elements of one rank's share, padded to whole elements a tensor."""
        return sum(-(-item.elements // self.of(item)) for item in items)

    def size(self, items: Iterable[Parameter]) -> int:
        """Bytes of one rank's share of parameters in their own dtype.

        Of a packed weight only the codes are divided: its scales and tables hang on the tensor as attributes
        (bitsandbytes QuantState) and stay whole on every rank. torchao's tensors split their scales too (NF4Tensor's
        `aten.split`, dtypes/nf4tensor.py 0.12).
        """
        return sum(self._share(item) for item in items)

    def _share(self, item: Parameter) -> int:
        if item.packed:
            codes, *rest = item.pieces
            if self.scales:
                return item.copies * -(-sum(item.pieces) // self.of(item))
            return item.copies * (-(-codes // self.of(item)) + storage.total(rest))
        return int(-(-item.elements // self.of(item)) * storage.dtype_bytes(item.dtype))


def ranks(job: Job, over: int | None = None) -> Ranks:
    """The data-parallel ranks of a job (times context parallel ones), or the `over` of a smaller shard group.

    Experts: of the D x t ranks of a pipeline stage, e x t' hold a replica of them, t' their own tensor parallel degree;
    the rest share each expert's states (Megatron-LM core/parallel_state.py, expert data parallel group).
    """
    dense = min(over, job.data_parallel) if over else job.data_parallel
    packed = job.weights.quantization
    scales = packed is not None and packed.method.startswith("torchao")
    plan = job.parallelism
    inner = plan.tensor if plan.expert_tensor is None else plan.expert_tensor
    experts = dense * plan.tensor // max(1, inner * plan.expert)
    return Ranks(max(1, dense), max(1, experts), scales)


def per_node(job: Job) -> int:
    """Processes on one machine: the GPUs over the nodes, by default at most 8 to a node."""
    nodes = job.hardware.nodes or -(-job.world_size // 8)
    return -(-job.world_size // max(1, nodes))


def stacks(found: Iterable[Parameter]) -> Iterator[list[Parameter]]:
    """Neighbours that lie in layers together, and every other parameter alone."""
    stack: list[Parameter] = []
    for item in found:
        if stack and (item.layers is None or stack[0].layers is None):
            yield stack
            stack = []
        stack.append(item)
    if stack:
        yield stack


def in_order(found: Iterable[Parameter]) -> Iterator[Parameter]:
    """Each parameter with the copies of one layer, as `model.parameters()` has them."""
    for stack in stacks(found):
        if stack[0].layers is None:
            yield from stack
            continue
        for layer in sorted({index for item in stack for index in item.layers or ()}):
            for item in stack:
                layers = item.layers or ()
                if layer in layers:
                    yield item._replace(copies=item.copies // len(layers))
