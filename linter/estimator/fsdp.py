"""PyTorch FSDP 1 and 2: sharded states, and the units that are gathered and reduced.

Source: torch 2.13, distributed/fsdp/_runtime_utils.py and _flat_param.py (version 1),
distributed/fsdp/_fully_shard/_fsdp_param_group.py and _fsdp_collectives.py (version 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..job import Fsdp
from . import derivation, host, optimizer
from .estimate import Term
from .frameworks import framework
from .gradients import gradient_dtype, largest_gradient
from .layout import Layout
from .loading import loading
from .parameters import allocated, base_dtype, elements, gathered_dtype
from .ranks import Ranks, per_node, ranks
from .release import reentrant
from .storage import dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..job import Job
    from ..models.model import Model
    from .instant import Instant
    from .parameter import Parameter

KEEPS_WHOLE = frozenset({"shard_grad_op", "_hybrid_shard_zero2", "hybrid_shard_zero2"})
"""Strategies that do not free the gathered parameters between forward and backward."""


@dataclass(slots=True)
class Unit:
    """One FSDP unit: elements and bytes when gathered, and bytes of its whole gradients before and as reduced."""

    elements: int = 0
    gathered: int = 0
    trainable: int = 0
    gradients: int = 0
    reduced: int = 0

    def add(self, item: Parameter, copies: int, policy: Policy) -> None:
        """Count `copies` of a parameter."""
        if item.packed:
            self.gathered += copies * item.pieces[0]
            return
        width = dtype_bytes(policy.gathered or item.dtype)
        self.elements += copies * item.size
        self.gathered += int(copies * item.size * width)
        if item.trainable:
            self.trainable += copies * item.size
            self.gradients += int(copies * item.size * width)
            self.reduced += int(copies * item.size * (dtype_bytes(policy.reduced) if policy.reduced else width))

    def flatten(self, policy: Policy) -> None:
        """One flat parameter of version 1: where a part of it is trained, its gradient covers all of it."""
        if self.trainable:
            self.gradients = self.gathered
            self.reduced = int(self.elements * dtype_bytes(policy.reduced)) if policy.reduced else self.gathered

    def absorb(self, other: Unit) -> None:
        """Count all of another unit."""
        self.elements += other.elements
        self.gathered += other.gathered
        self.trainable += other.trainable
        self.gradients += other.gradients
        self.reduced += other.reduced


class Policy(NamedTuple):
    """The dtypes of MixedPrecision; None leaves each parameter's own (reduced: the gathered one)."""

    gathered: str | None
    reduced: str | None


@dataclass(slots=True)
class ShardedLayout(Layout):
    """Units gathered for their forward and backward.

    root, block       the root unit (all that is not wrapped) and the largest wrapped one
    blocks            how many wrapped units
    version           1 or 2;  whole  units stay gathered from forward to backward
    adapters          version 1 with frozen layers around wrapped adapter modules
    kept              bytes that each finished layer's backward leaves until the end of the pass
    deferred          bytes of the whole gradients that a rank keeps while it accumulates without reducing
    """

    root: Unit | None = None
    block: Unit | None = None
    blocks: int = 0
    kept: int = 0
    adapters: bool = False
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
            return self.deferred if self.accumulating else self.deferred * done // max(1, self.trainable)
        if self.on_host:
            return 0
        return super(ShardedLayout, self).gradient_bytes(done)

    def activation_bytes(self, instant: Instant) -> int:
        """With what the finished layers' backward leaves (`kept`)."""
        finished = 0
        if instant.phase == "backward" and instant.layer is not None:
            finished = max(0, self.blocks - 1 - instant.layer)
        return instant.activations + finished * self.kept

    def buffer_bytes(self, instant: Instant) -> int:
        """Gathered units and whole gradients.

        The root stays gathered through forward and backward, and so do its whole gradients once there are any.
        Forward: version 1 holds the unit in use (two with forward_prefetch); version 2 also the flat buffer of its
        all-gather, freed after the next one's copy-out. Backward: the unit in use and the prefetched one (none before
        the first layer; with an adapter version 1 prefetches at the end of a layer's backward, since the adapter's
        modules are units of their own in between), the whole gradients of the unit in use, and the reduce-scatter's
        input (version 1 only where the reduce dtype differs; version 2 that of the previous unit).
        """
        assert self.root is not None
        assert self.block is not None
        begun = instant.gradient_elements > 0
        size = self.buffers + self.root.gathered
        if begun and self.root.trainable:
            size += self.root.gradients * min(instant.gradient_elements, self.root.trainable) // self.root.trainable
        if not self.blocks:
            return size + (self._reduction(self.root) if begun else 0)
        backward = instant.phase == "backward"
        if self.whole:
            size += self._still_whole(instant) * self.block.gathered
        elif instant.layer is None and not begun:
            size += self.block.gathered * (1 if self.version == 2 and not backward else 0)
        elif backward:
            size += (1 if instant.layer == 0 or self.adapters else 2) * self.block.gathered
        else:
            size += self.block.gathered * (2 if self.version == 2 or self.ahead else 1)
        if backward and instant.layer is not None:
            size += self.block.gradients + self._reduction(self.block)
        return size

    def _reduction(self, unit: Unit) -> int:
        """The reduce-scatter's input: version 1 hands over the gradient itself where the dtype is the same."""
        return unit.reduced if self.version == 2 or unit.reduced != unit.gradients else 0

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
    base = over.size(item for item in shardable if item.part == "base")
    adapter = over.size(item for item in shardable if item.part != "base")
    built = ShardedLayout(
        weights=allocated(fixed) + (0 if fsdp.offload else base),
        adapter=0 if fsdp.offload else adapter,
        optimizer=0 if fsdp.offload else states.allocated,
        paged=0 if fsdp.offload else states.paged,
        host=per_node(job) * (states.paged + states.host),
        gradients=0 if fsdp.offload else gradients,
        trainable=elements(trained),
        largest_gradient=largest_gradient(trained, job) // over.dense,
        step_optimizer=0 if fsdp.offload else states.temporary,
        load=_load(found, fsdp, over, job),
        accumulating=job.gradient_accumulation_steps > 1 and not job.longest_first,
        in_backward=spec.in_backward,
        on_host=fsdp.offload,
        version=fsdp.version,
        whole=fsdp.sharding in KEEPS_WHOLE or not fsdp.reshard_after_forward,
        ahead=fsdp.forward_prefetch,
    )
    policy = Policy(gathered_dtype(job), fsdp.mixed_precision.reduce_dtype)
    built.root, built.block, built.blocks = units(fsdp, model, shardable, policy)
    inside = framework(job).adapters_inside and fsdp.version == 1
    for unit in (built.root, built.block) if inside else ():
        unit.flatten(policy)
    frozen = not any(item.trainable and item.part == "base" and item.layers is not None for item in shardable)
    built.adapters = fsdp.version == 1 and frozen and not inside
    built.kept = _kept(job, fsdp, model) if built.adapters else 0
    if job.gradient_accumulation_steps > 1 and not fsdp.sync_each_batch:
        everything = units(Fsdp(wrap="none"), model, shardable, policy)[0]
        if inside:
            everything.gradients = built.root.gradients + built.blocks * built.block.gradients
        built.deferred = everything.reduced if fsdp.version == 2 else everything.gradients
    if fsdp.offload:
        built.host = host.sharded(job, base + adapter, gradients, states.raw)
    built.terms = _terms(job, fsdp, built, found, over)
    built.terms += derivation.optimizer(items, spec, states, job, ranks=over.dense) if not fsdp.offload else []
    return built


def units(fsdp: Fsdp, model: Model, shardable: Sequence[Parameter], policy: Policy) -> tuple[Unit, Unit, int]:
    """The root unit, the largest wrapped unit and their number.

    `transformer` wraps each decoder layer; `none` leaves all in the root; `size` wraps modules of at least
    `min_num_params` (taken to be the layers when they are that large).
    """
    root, layers = Unit(), [Unit() for _ in range(max(0, model.shape.layers))]
    for item in shardable:
        inside = item.layers if item.layers is not None and fsdp.wrap != "none" else ()
        inside = tuple(layer for layer in inside if layer < len(layers))
        for layer in inside:
            layers[layer].add(item, 1, policy)
        if item.copies > len(inside):
            root.add(item, item.copies - len(inside), policy)
    used = [unit for unit in layers if unit.gathered]
    largest = max(used, key=lambda unit: unit.gathered, default=Unit())
    if fsdp.wrap == "size" and largest.elements < (fsdp.min_num_params or 100_000_000):
        for unit in used:
            root.absorb(unit)
        return root, Unit(), 0
    return root, largest, len(used)


def _kept(job: Job, fsdp: Fsdp, model: Model) -> int:
    """2 x e T h that every finished layer keeps when version 1 wraps frozen layers under reentrant checkpointing.

    For a flat parameter without gradients FSDP hangs its reshard on the layer's inputs with `register_multi_grad_hook`
    (`_register_post_backward_reshard_only_hook`), whose handle lives until the end of the backward pass and holds the
    detached input that the recomputation made, together with its `.grad`: T x h elements each.
    """
    if fsdp.wrap != "transformer" or job.activation_checkpointing != "full" or not reentrant(job):
        return 0
    tokens = (job.micro_batch_size or 0) * (job.sequence_length or 0) // max(1, job.parallelism.context)
    dtype = gathered_dtype(job) or base_dtype(job, model)
    return int(2 * dtype_bytes(dtype) * tokens * model.shape.hidden)


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


def _load(found: Sequence[Parameter], fsdp: Fsdp, over: Ranks, job: Job) -> int:
    """Units are made on the GPU one at a time; packed weights are on every rank whole before they are sharded."""
    packed = [item for item in found if item.packed]
    if packed and not fsdp.cpu_ram_efficient_loading and not framework(job).loads_shards:
        return allocated(packed) - over.size(packed) + loading(found, job)
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
        terms += [*derivation.weights(shardable, over), *derivation.gradients(trained, job, over.dense)]
    if built.deferred:
        note = f"whole gradients of {elements(trained):,} elements, not reduced before the last micro step (no_sync)"
        source = "transformers 5.23 trainer.py; accelerate no_sync: sync_each_batch is off by default"
        terms.append(Term("gradients", note, built.deferred, source))
    root, block = built.root or Unit(), built.block or Unit()
    formula = f"root unit gathered: {root.elements:,} elements of what is not wrapped"
    terms.append(Term("buffers", formula, root.gathered, "torch FSDP: the root is not resharded"))
    if built.blocks:
        formula = f"two wrapped units in backward: 2 x {block.elements:,} elements"
        terms.append(Term("buffers", formula, 2 * block.gathered, "torch FSDP prefetch"))
    if built.kept:
        note = f"input and input gradient of {built.blocks - 1} frozen layers, kept to the end of the backward pass"
        terms.append(Term("activations", note, built.kept * (built.blocks - 1), "torch FSDP 1 with use_reentrant"))
    return terms
