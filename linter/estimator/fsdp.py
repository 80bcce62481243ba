"""PyTorch FSDP 1 and 2: sharded states, and the units that are gathered and reduced.

Source: torch 2.13, distributed/fsdp/_runtime_utils.py and _flat_param.py (version 1),
distributed/fsdp/_fully_shard/_fsdp_param_group.py and _fsdp_collectives.py (version 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import derivation, host, optimizer
from .estimate import Term
from .gradients import gradient_dtype, largest_gradient
from .layout import Layout
from .loading import loading
from .parameters import allocated, elements
from .ranks import Ranks, ranks
from .storage import dtype_bytes, total

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..job import Fsdp, Job
    from ..models.model import Model
    from .instant import Instant
    from .parameters import Parameter

KEEPS_WHOLE = frozenset({"shard_grad_op", "_hybrid_shard_zero2", "hybrid_shard_zero2"})
"""Strategies that do not free the gathered parameters between forward and backward."""


@dataclass(slots=True)
class Unit:
    """What one FSDP unit holds, in elements: all its parameters, and the trainable ones."""

    elements: int = 0
    trainable: int = 0
    packed: int = 0

    def add(self, item: Parameter, copies: int = 1) -> None:
        """Count `copies` of a parameter."""
        if item.packed:
            self.packed += copies * total(item.pieces)
            return
        self.elements += copies * item.size
        if item.trainable:
            self.trainable += copies * item.size


@dataclass(slots=True)
class ShardedLayout(Layout):
    """Units gathered for their forward and backward.

    root, block       the root unit (all that is not wrapped) and the largest wrapped one
    blocks            how many wrapped units
    width, reduce     bytes of an element when gathered and when reduced
    version           1 or 2;  whole  units stay gathered from forward to backward
    deferred          bytes of the whole gradients that a rank keeps while it accumulates without reducing
    """

    root: Unit | None = None
    block: Unit | None = None
    blocks: int = 0
    width: float = 2.0
    reduce: float = 2.0
    version: int = 1
    whole: bool = False
    ahead: bool = False
    on_host: bool = False
    deferred: int = 0

    def gradient_bytes(self, done: int) -> int:
        """The shards of the gradients complete by then; in main memory with CPU offload.

        While accumulating, the Trainer defers the reduction to the last micro step (`no_sync`), and every rank keeps
        whole gradients: in the reduce dtype under version 2, in the gathered one under version 1.
        """
        if self.deferred:
            return self.deferred
        if self.on_host:
            return 0
        return super(ShardedLayout, self).gradient_bytes(done)

    def buffer_bytes(self, instant: Instant) -> int:
        """Gathered units and whole gradients.

        The root stays gathered through forward and backward, and so do its whole gradients once there are any.
        Wrapped units, forward: version 1 the one in use (two with forward_prefetch); version 2 the one in use and the
        flat buffer of its all-gather, freed after the next one's copy-out. Backward: the one in use and the
        prefetched one, the whole gradients of the one in use, and the reduce-scatter input (version 1 only where the
        reduce dtype differs; version 2 that of the previous unit).
        """
        assert self.root is not None
        assert self.block is not None
        size = self.root.elements * self.width + self.root.packed
        if instant.gradient_elements:
            size += min(instant.gradient_elements, self.root.trainable) * self.width
        if not self.blocks:
            if instant.gradient_elements and (self.version == 2 or self.reduce != self.width):
                size += self.root.trainable * self.reduce
            return self.buffers + int(size)
        unit = self.block.elements * self.width + self.block.packed
        backward = instant.phase == "backward"
        if self.whole:
            size += self._still_whole(instant) * unit
        elif instant.layer is None and not backward:
            size += unit * (1 if self.version == 2 else 0)
        elif backward:
            size += 2 * unit
        else:
            size += unit * (2 if self.version == 2 or self.ahead else 1)
        if backward and instant.layer is not None:
            size += self.block.trainable * self.width
            if self.version == 2 or self.reduce != self.width:
                size += self.block.trainable * self.reduce
        return self.buffers + int(size)

    def _still_whole(self, instant: Instant) -> int:
        """Units gathered under a strategy that keeps them: those done forward, or not yet done backward."""
        if instant.layer is None:
            return self.blocks
        return min(self.blocks, instant.layer + 1)


def fsdp_layout(job: Job, model: Model, found: tuple[Parameter, ...]) -> Layout:
    """The Layout under FSDP. N ranks of a shard group, every state divided by N.

    weights     the shards in their own dtype (fp32 where the mixed precision of accelerate upcasts trainable ones);
                packed weights with byte storage cannot be sharded and stay whole
    optimizer   states of the shards in the shards' dtype
    Hybrid strategies shard over the GPUs of one node (or `shard_size`).
    """
    fsdp = job.parallelism.fsdp
    assert fsdp is not None
    over = ranks(job, _group(job, fsdp))
    shardable = [item for item in found if item.part != "buffer" and not _stays_whole(item, job)]
    fixed = [item for item in found if item.part == "buffer" or _stays_whole(item, job)]
    trained = [item for item in found if item.trainable]
    spec = optimizer.of_job(job)
    items = _items(trained, over, fsdp)
    states = optimizer.states(items, spec, job)
    gradients = sum(
        int(-(-item.elements // over.of(item)) * dtype_bytes(gradient_dtype(item, job))) for item in trained
    )
    base = _share([item for item in shardable if item.part == "base"], over)
    adapter = _share([item for item in shardable if item.part != "base"], over)
    built = ShardedLayout(
        weights=allocated(fixed) + (0 if fsdp.offload else base),
        adapter=0 if fsdp.offload else adapter,
        optimizer=0 if fsdp.offload else states.allocated,
        paged=0 if fsdp.offload else states.paged,
        gradients=0 if fsdp.offload else gradients,
        trainable=elements(trained),
        largest_gradient=largest_gradient(trained, job) // over.dense,
        step_optimizer=0 if fsdp.offload else states.temporary,
        load=_load(found, fsdp, over),
        accumulating=job.gradient_accumulation_steps > 1,
        in_backward=spec.in_backward,
        on_host=fsdp.offload,
        version=fsdp.version,
        whole=fsdp.sharding in KEEPS_WHOLE or not fsdp.reshard_after_forward,
        ahead=fsdp.forward_prefetch,
    )
    built.root, built.block, built.blocks = units(fsdp, model, shardable)
    built.width, built.reduce = _widths(job, fsdp, shardable)
    if built.accumulating and not fsdp.sync_each_batch:
        built.deferred = int(elements(trained) * (built.reduce if fsdp.version == 2 else built.width))
    if fsdp.offload:
        built.host = host.sharded(job, base + adapter, gradients, states.raw)
    built.terms = _terms(job, fsdp, built, found, over)
    built.terms += derivation.optimizer(items, spec, states, job, ranks=over.dense) if not fsdp.offload else []
    return built


def units(fsdp: Fsdp, model: Model, shardable: Sequence[Parameter]) -> tuple[Unit, Unit, int]:
    """The root unit, the largest wrapped unit and their number.

    `transformer` wraps each decoder layer; `none` leaves all in the root; `size` wraps modules of at least
    `min_num_params` (taken to be the layers when they are that large).
    """
    root, layers = Unit(), [Unit() for _ in range(max(0, model.shape.layers))]
    for item in shardable:
        inside = item.layers if item.layers is not None and fsdp.wrap != "none" else ()
        for layer in inside:
            if layer < len(layers):
                layers[layer].add(item)
        outside = item.copies - len(inside)
        if outside > 0:
            root.add(item, outside)
    used = [unit for unit in layers if unit.elements or unit.packed]
    largest = max(used, key=lambda unit: unit.elements + unit.packed, default=Unit())
    if fsdp.wrap == "size" and largest.elements < (fsdp.min_num_params or 100_000_000):
        for unit in used:
            root.elements += unit.elements
            root.trainable += unit.trainable
            root.packed += unit.packed
        return root, Unit(), 0
    return root, largest, len(used)


def _group(job: Job, fsdp: Fsdp) -> int | None:
    if fsdp.shard_size:
        return fsdp.shard_size
    if fsdp.sharding.strip("_").startswith("hybrid"):
        nodes = max(1, job.hardware.nodes or -(-job.world_size // 8))
        return max(1, job.data_parallel // nodes)
    return None


def _stays_whole(item: Parameter, job: Job) -> bool:
    quantization = job.weights.quantization
    if not item.packed:
        return False
    return quantization is None or (quantization.storage_dtype or "uint8") in ("uint8", "int8")


def _items(trained: Sequence[Parameter], over: Ranks, fsdp: Fsdp) -> list[optimizer.Item]:
    """Version 2 keeps matrices, cut in their first dimension; version 1 flattens units to vectors."""
    if fsdp.version == 1:
        sizes: dict[str, int] = {}
        for item in trained:
            sizes[item.dtype] = sizes.get(item.dtype, 0) + -(-item.elements // over.of(item))
        return [optimizer.Item((size,), 1, dtype, flat=True) for dtype, size in sizes.items()]
    cut = []
    for whole, parameter in zip(optimizer.items(trained), trained, strict=True):
        first = -(-whole.shape[0] // over.of(parameter)) if whole.shape else 1
        cut.append(whole._replace(shape=(first, *whole.shape[1:])))
    return cut


def _share(items: Sequence[Parameter], over: Ranks) -> int:
    packed = sum(-(-item.allocated // over.of(item)) for item in items if item.packed)
    return packed + over.size(item for item in items if not item.packed)


def _widths(job: Job, fsdp: Fsdp, shardable: Sequence[Parameter]) -> tuple[float, float]:
    """Bytes of a gathered and of a reduced element: MixedPrecision's dtypes, else the widest parameter's own."""
    own = max((dtype_bytes(item.dtype) for item in shardable if not item.packed), default=2.0)
    policy = fsdp.mixed_precision
    compute = policy.param_dtype or job.precision.autocast if fsdp.upcast_trainable else policy.param_dtype
    width = dtype_bytes(compute) if compute else own
    reduce = dtype_bytes(policy.reduce_dtype) if policy.reduce_dtype else width
    return width, reduce


def _load(found: Sequence[Parameter], fsdp: Fsdp, over: Ranks) -> int:
    """Units are made on the GPU one at a time; packed weights are on every rank whole before they are sharded."""
    packed = [item for item in found if item.packed]
    if packed and not fsdp.cpu_ram_efficient_loading:
        return allocated(packed) - sum(-(-item.allocated // over.of(item)) for item in packed) + loading(found)
    return max((int(item.size * item.element_bytes) for item in found if not item.packed), default=0)


def _terms(job: Job, fsdp: Fsdp, built: ShardedLayout, found: Sequence[Parameter], over: Ranks) -> list[Term]:
    shardable = [item for item in found if item.part != "buffer" and not _stays_whole(item, job)]
    fixed = [item for item in found if item.part == "buffer" or _stays_whole(item, job)]
    trained = [item for item in found if item.trainable]
    terms = [*derivation.weights(fixed)]
    if fsdp.offload:
        note = "shards of weights, gradients and optimizer states in main memory (offload_params)"
        terms.append(Term("optimizer", note, 0, "torch FSDP CPUOffload"))
    else:
        terms += [*derivation.weights(shardable, over.dense), *derivation.gradients(trained, job, over.dense)]
    if built.deferred:
        note = f"whole gradients of {elements(trained):,} elements, not reduced before the last micro step (no_sync)"
        source = "transformers 5.23 trainer.py; accelerate no_sync: sync_each_batch is off by default"
        terms.append(Term("gradients", note, built.deferred, source))
    root, block = built.root or Unit(), built.block or Unit()
    formula = f"root unit gathered: {built.width:g} B x {root.elements:,} elements"
    terms.append(Term("buffers", formula, int(root.elements * built.width), "torch FSDP: the root is not resharded"))
    if built.blocks:
        formula = f"wrapped units in backward: 2 x {built.width:g} B x {block.elements:,} elements"
        terms.append(Term("buffers", formula, int(2 * block.elements * built.width), "torch FSDP prefetch"))
    return terms
