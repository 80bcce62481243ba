"""Over how many ranks a sharded run divides a parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from . import storage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...job.job import Job
    from .parameter import Parameter


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
