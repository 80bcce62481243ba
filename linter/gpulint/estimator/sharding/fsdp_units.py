"""The units of an FSDP run: which parameters are gathered, freed and reduced together.

Source: torch 2.13, distributed/fsdp/wrap.py (version 1), distributed/fsdp/_fully_shard (version 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..states.storage import dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...job.job import Fsdp, Job
    from ...models.model import Model
    from ..states.parameter import Parameter


class Policy(NamedTuple):
    """The dtypes of MixedPrecision; None leaves each parameter's own (reduced: the gathered one).

    `apart`: experts are no units: they have none of it, and are not gathered.
    """

    gathered: str | None
    reduced: str | None
    apart: bool = False


@dataclass(slots=True)
class Unit:
    """One FSDP unit: elements and bytes when gathered, and bytes of its whole gradients before and as reduced.

    late    of the elements with a gradient, those whose gradient comes last in the backward pass (the embedding)
    """

    elements: int = 0
    gathered: int = 0
    graded: int = 0
    gradients: int = 0
    reduced: int = 0
    late: int = 0

    def add(self, item: Parameter, copies: int, policy: Policy) -> None:
        """Count `copies` of a parameter."""
        if item.packed:
            self.gathered += copies * item.pieces[0]
            return
        apart = policy.apart and item.role.startswith("expert_")
        gathered, reduced = (None, None) if apart else (policy.gathered, policy.reduced)
        width = dtype_bytes(gathered or item.dtype)
        self.elements += copies * item.size
        self.gathered += 0 if apart else int(copies * item.size * width)
        if item.graded:
            self.graded += copies * item.size
            self.gradients += int(copies * item.size * width)
            self.reduced += int(copies * item.size * (dtype_bytes(reduced) if reduced else width))
            self.late += copies * item.size if item.role in ("embedding", "position") else 0

    def absorb(self, other: Unit) -> None:
        """Count all of another unit."""
        self.elements += other.elements
        self.gathered += other.gathered
        self.graded += other.graded
        self.gradients += other.gradients
        self.reduced += other.reduced
        self.late += other.late

    def made(self, elements: int) -> int:
        """Bytes of the gradients of `elements` of this unit."""
        return self.gradients * min(elements, self.graded) // self.graded if self.graded else 0


class Units(NamedTuple):
    """The root unit, what lies outside the layers in units of its own, the largest layer, all layers together.

    first, last    embedding and head where they are units of their own, else empty
    sizes          bytes of each gathered layer, first to last
    """

    root: Unit
    first: Unit
    last: Unit
    block: Unit
    blocks: int
    layers: Unit
    sizes: tuple[int, ...] = ()

    def until(self, layer: int) -> int:
        """Bytes of the layers before `layer`, gathered."""
        return sum(self.sizes[:layer])

    @property
    def everything(self) -> Unit:
        """All units together."""
        total = Unit()
        for unit in (self.root, self.first, self.last, self.layers):
            total.absorb(unit)
        return total


def units(fsdp: Fsdp, model: Model, shardable: Sequence[Parameter], policy: Policy) -> Units:
    """The units of a wrap policy.

    `transformer` wraps each decoder layer; `none` leaves all in the root; `size` wraps modules of at least
    `min_num_params` (taken to be the layers when they are that large). What lies outside the layers belongs to the
    root, or `outer` says that embedding and head are units of their own. Tied ones share a unit, which then is the
    root's.
    """
    root, first, last = Unit(), Unit(), Unit()
    count = max(0, model.shape.layers)
    alike: dict[tuple[int, ...], Unit] = {}
    apart = fsdp.outer != "root" and fsdp.wrap != "none" and not model.shape.tied
    for item in shardable:
        inside = item.layers if item.layers is not None and fsdp.wrap != "none" else ()
        inside = tuple(layer for layer in inside if layer < count)
        if inside:
            alike.setdefault(inside, Unit()).add(item, 1, policy)
        if item.copies > len(inside):
            outside = root
            if apart and item.layers is None and item.role in ("embedding", "head"):
                outside = first if item.role == "embedding" else last
            outside.add(item, item.copies - len(inside), policy)
    if model.shape.tied:
        root.late = 0
    layers = [Unit() for _ in range(count)]
    for members, unit in alike.items():
        for layer in members:
            layers[layer].absorb(unit)
    used = [unit for unit in layers if unit.gathered]
    largest = max(used, key=lambda unit: unit.gathered, default=Unit())
    together = Unit()
    for unit in used:
        together.absorb(unit)
    if fsdp.wrap == "size" and largest.elements < (fsdp.min_num_params or 100_000_000):
        root.absorb(together)
        return Units(root, first, last, Unit(), 0, Unit())
    return Units(root, first, last, largest, len(used), together, tuple(unit.gathered for unit in used))


def stays_replicated(item: Parameter, job: Job) -> bool:
    """Whether a packed weight is stored in bytes, which only a patched FSDP shards."""
    quantization, fsdp = job.weights.quantization, job.parallelism.fsdp
    if not item.packed or (fsdp is not None and fsdp.shards_packed):
        return False
    return quantization is None or (quantization.storage_dtype or "uint8") in ("uint8", "int8")


BACKWARD_PRE = "BACKWARD_PRE"
"""torch's policy of that name, and its number 1 (torch/distributed/fsdp/api.py `BackwardPrefetch`)."""


def prefetches(fsdp: Fsdp) -> bool:
    """Whether the next unit is gathered before the backward of the one in use has begun.

    Version 2 does so by itself. Version 1 does under BACKWARD_PRE, torch's default; BACKWARD_POST waits until the one
    in use is freed, and where accelerate is told nothing (NO_PREFETCH) a unit is gathered when its turn comes (torch
    2.13 distributed/fsdp/_runtime_utils.py `_get_handle_to_prefetch`). Adapters' modules are units of their own, before
    which version 1 prefetches those and not the next layer.
    """
    return fsdp.version == 2 or (fsdp.backward_prefetch or BACKWARD_PRE).upper() in (BACKWARD_PRE, "1")
