"""PyTorch FSDP 1 and 2: sharded states, and the units that are gathered and reduced.

Source: torch 2.13, distributed/fsdp/_runtime_utils.py and _flat_param.py (version 1),
distributed/fsdp/_fully_shard/_fsdp_param_group.py and _fsdp_collectives.py (version 2).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...models.arch_spec import reuses_layers
from ...upstream.accelerate import DEFERS_FSDP2
from ...upstream.stack import Stack
from ..explain import derivation
from ..peak_candidate import Instant
from ..states import optimizer, storage
from ..states.gradients import gradient_dtype
from ..states.loading import loading
from ..states.parameters import allocated, gathered_dtype
from ..states.ranks import Ranks, per_node, ranks
from ..states.storage import dtype_bytes
from . import host
from .fsdp_held import cached, kept
from .fsdp_terms import (
    GRADIENTS,
    ROOT,
    ROOT_GRADIENTS,
    ROOT_REDUCED,
    UNITS,
    Part,
    deferred_term,
    part_term,
    terms,
)
from .fsdp_units import Policy, Unit, Units, prefetches, units, whole_on_each
from .layout import Layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...job.job import Fsdp, Job
    from ...models.model import Model
    from ..estimate import Term
    from ..states.parameter import Parameter

KEEPS_WHOLE = frozenset({"shard_grad_op", "_hybrid_shard_zero2", "hybrid_shard_zero2"})
"""Strategies that do not free the gathered parameters between forward and backward."""


@dataclass(slots=True)
class ShardedLayout(Layout):
    """Units gathered for their forward and backward.

    plan              the units;  version  1 or 2
    resident          share of every layer's unit that stays from forward to backward: 1 under a strategy that does not
                      reshard, 1/k where `reshard_after_forward` is the size k of a smaller group
    cached            bytes of keys and values that each layer returns; `named`: the loop holds them
    adapters          version 1 with frozen layers around wrapped adapter modules
    prefetches        whether backward gathers the next unit before it is done with the one in use
    kept              bytes that each finished layer's backward leaves until the end of the pass
    deferred          bytes of the whole gradients that a rank keeps while it accumulates without reducing
    keeps_last        the last layer's unit stays from forward to backward
    steps             micro steps of an optimizer step, 1 where the first of them is the longest
    reused            how many layers the units are run as, where layers are one and the same (ALBERT); else 0
    """

    plan: Units | None = None
    kept: int = 0
    cached: int = 0
    named: bool = False
    adapters: bool = False
    prefetches: bool = True
    version: int = 1
    resident: float = 0.0
    ahead: bool = False
    on_host: bool = False
    deferred: int = 0
    keeps_last: bool = False
    steps: int = 1
    reused: int = 0

    def evaluating(self) -> Layout:
        """Without the caches of training's passes: those of an evaluation are counted by its own rows."""
        return replace(self, cached=0)

    def gradient_bytes(self, done: int) -> int:
        """The shards of the gradients complete by then; in main memory with CPU offload.

        While accumulating, the Trainer defers the reduction to the last micro step (`no_sync`), and every rank keeps
        whole gradients: in the reduce dtype under version 2, in the gathered one under version 1. Of two micro steps
        the first makes them and the second turns them into shards, layer by layer.
        """
        if self.deferred:
            if self.trainable and not self.accumulating:
                return self.deferred * min(done, self.trainable) // self.trainable
            if self.steps > 2 or not self.trainable:
                return self.deferred
            made = -(-self.deferred * min(done, self.trainable) // self.trainable)
            if self.steps == 1:
                return made
            return max(made, self.deferred - made + (0 if self.on_host else self._share(done)))
        if self.on_host:
            return 0
        return super(ShardedLayout, self).gradient_bytes(done)

    def activation_bytes(self, instant: Instant) -> int:
        """With what the finished layers' backward leaves (`kept`), and the model's cache (`cached`).

        The last finished one's input gradient is already counted: it is what the layer in flight was handed.
        """
        finished = 0
        if self.plan is not None and instant.phase == "backward" and instant.layer is not None:
            finished = max(0, (self.reused or self.plan.blocks) - 1 - instant.layer)
        held = self._held(instant)
        return instant.activations + held + finished * self.kept - (self.kept // 2 if finished else 0)

    def _held(self, instant: Instant) -> int:
        """Keys and values that the layers have returned by then, and of the step before where the loop holds them.

        A name of the outputs is bound anew when the forward pass has ended.
        """
        if self.plan is None or not self.cached or (instant.phase == "backward" and not self.named):
            return 0
        if instant.phase != "forward":
            return self.plan.blocks * self.cached
        begun = self.plan.blocks if instant.layer is None else instant.layer
        return (begun + (self.plan.blocks if self.named else 0)) * self.cached

    def ending(self, instant: Instant) -> bool:
        """Whether the root's gradients are all there, to be flattened or copied for its reduction."""
        behind = instant.phase == "backward" and instant.layer is None
        return behind and instant.gradient_elements >= self.trainable > 0

    def later(self) -> list[Instant]:
        """The last layer's backward with whole gradients from before, where the longest batch is the first.

        How long the later batches are is not known.
        """
        layers = self.reused or (self.plan.blocks if self.plan is not None else 0)
        if not self.deferred or self.steps > 1 or self.plan is None or layers < 2:
            return []
        return [Instant("backward", 0, 0, self.trainable, layers - 1, self.plan.block.graded)]

    @property
    def in_backward_at_once(self) -> int:
        """Layers' units that backward holds gathered: the one in use, and the next where it is prefetched."""
        return 1 if not self.prefetches or (self.reused and self.plan is not None and self.plan.blocks == 1) else 2

    def buffer_bytes(self, instant: Instant) -> int:
        """Gathered units and whole gradients.

        The root stays gathered through forward and backward, and so do its whole gradients once there are any.
        Forward: version 1 holds the unit in use (two with forward_prefetch); version 2 also the flat buffer of its
        all-gather, freed after the next one's copy-out. Backward: the unit in use and the prefetched one (none before
        the first layer, and where all layers are one unit), and its gradients, see `_whole_gradients`.
        """
        return self.buffers + sum(part.size for part in self.parts(instant))

    def told(self, instant: Instant) -> list[Term]:
        """Lines of the gathered units and of gradients that are not reduced yet."""
        return [part_term(part) for part in self.parts(instant) if part.size]

    def gradient_lines(self, lines: list[Term], instant: Instant) -> list[Term]:
        """Whole gradients in the place of the shards, while the reduction is deferred."""
        size = self.gradient_bytes(instant.gradient_elements)
        return [deferred_term(self, size)] if self.deferred and size else lines

    def parts(self, instant: Instant) -> list[Part]:
        """What `buffer_bytes` adds up."""
        plan = self.plan
        assert plan is not None
        found = [Part(plan.root, plan.root.gathered, ROOT)]
        found.append(Part(plan.root, self._root_gradients(instant), ROOT_GRADIENTS))
        if self.ending(instant):
            found.append(Part(plan.root, self._ended(plan.root), ROOT_REDUCED))
        if not plan.blocks:
            return found
        unit = self._unit(instant)
        found.append(Part(unit, self._gathered(instant, unit), UNITS))
        if instant.phase != "backward":
            return found
        if self.reused and instant.layer is not None and not self.deferred:
            return [*found, Part(unit, self._added_up(unit, instant.layer, instant.fresh), GRADIENTS)]
        return [*found, Part(unit, self._whole_gradients(unit, instant.fresh), GRADIENTS)]

    def _added_up(self, unit: Unit, layer: int, fresh: int) -> int:
        """The gradients of a unit that layers have in common: AccumulateGrad runs once, behind the first layer.

        Version 1 splits the flat parameter anew for each layer, whose gradients are flattened before they are added.
        """
        assert self.plan is not None
        if layer == self.reused - 1:
            return unit.made(fresh)
        last = layer == 0 or self.plan.blocks > 1
        return unit.gradients * (2 if self.version == 1 else 1) + (self._ended(unit) if last else 0)

    def _unit(self, instant: Instant) -> Unit:
        """The unit in use; outside the layers embedding or head, where they are units."""
        assert self.plan is not None
        if instant.layer is not None:
            return self.plan.block
        return max(self.plan.first, self.plan.last, key=lambda unit: unit.gathered)

    def _gathered(self, instant: Instant, unit: Unit) -> int:
        """Bytes of gathered units other than the root."""
        plan = self.plan
        assert plan is not None
        backward = instant.phase == "backward"
        passed = plan.blocks if instant.layer is None else min(plan.blocks, instant.layer + 1)
        if instant.layer is None and (backward or instant.phase == "forward") and instant.gradient_elements:
            passed = 0
        kept = int(self.resident * plan.until(passed))
        if instant.layer is None:
            both = 2 if self.version == 2 else 1
            turn = instant.phase == "loss" or not backward
            ahead = plan.block.gathered if self.version == 2 and turn else 0
            last = plan.block.gathered if self.keeps_last and passed else 0
            return max(kept, last if self.resident == 1 else ahead + last) + both * unit.gathered
        if self.resident == 1:
            return kept
        if backward:
            return kept + (1 if instant.layer == 0 else self.in_backward_at_once) * unit.gathered
        return kept + unit.gathered * (2 if self.version == 2 or self.ahead else 1)

    def _root_gradients(self, instant: Instant) -> int:
        """The root is reduced at the end of the pass: its head has gradients first, its embedding last."""
        assert self.plan is not None
        root, done = self.plan.root, instant.gradient_elements
        if self.deferred and self.version == 2:
            return 0
        if not self.plan.blocks:
            return root.made(done)
        late = max(0, done - (self.trainable - root.late))
        return root.made(min(done, root.graded - root.late) + late)

    def _whole_gradients(self, unit: Unit, fresh: int) -> int:
        """The unit's gradients as far as they are made, what its reduction adds, and the previous unit's.

        Version 1 flattens the gradients of a unit's tensors into one, the gradient of the flat parameter that was
        split into them (SplitBackward), so that both exist for a moment; the reduce-scatter takes that one, or a copy
        in its own dtype. Version 2 copies them into the input of the reduce-scatter, which lives until the next unit's
        begins; while it accumulates without reducing, they are the accumulated ones.
        """
        if self.version == 1:
            return self._ended(unit) + unit.gradients if fresh >= unit.graded else unit.made(fresh)
        if self.deferred and unit.reduced == unit.gradients:
            return 0 if self.steps > 2 else unit.reduced
        return unit.made(fresh) + unit.reduced

    def _ended(self, unit: Unit) -> int:
        """What a unit's finished gradients need besides themselves when they are reduced."""
        return unit.reduced if self.version == 2 else max(unit.gradients, unit.reduced)


def fsdp_layout(job: Job, model: Model, found: tuple[Parameter, ...]) -> Layout:
    """The Layout under FSDP. N ranks of a shard group, every state divided by N.

    weights     the shards in their own dtype (fp32 where the mixed precision of accelerate upcasts trainable ones);
                packed weights with byte storage cannot be sharded and stay whole
    gradients   of all that autograd makes one for; version 1 keeps the shard of a whole flat parameter
    optimizer   states of the trained shards in the shards' dtype
    Hybrid strategies shard over the GPUs of one node (or `shard_size`). Offload leaves the scales of bitsandbytes'
    weights on every GPU: they are no parameters, and went there with theirs (`Params4bit.to`).
    """
    fsdp = job.parallelism.fsdp
    assert fsdp is not None
    over = ranks(job, group(job, fsdp))
    shardable = [item for item in found if item.part != "buffer" and not whole_on_each(item, job)]
    fixed = [item for item in found if item.part == "buffer" or whole_on_each(item, job)]
    graded = [item for item in found if item.graded]
    spec = optimizer.of_job(job)
    items = _items([item for item in found if item.trainable], over, fsdp)
    states = optimizer.states(items, spec, job)
    gradients = sum(int(-(-item.elements // over.of(item)) * dtype_bytes(gradient_dtype(item, job))) for item in graded)
    base = over.size(item for item in shardable if item.part == "base")
    scaled = [item for item in shardable if item.packed and not over.scales]
    scales = sum(item.copies * storage.total(item.pieces[1:]) for item in scaled)
    adapter = over.size(item for item in shardable if item.part != "base")
    largest = max((int(item.size * dtype_bytes(gradient_dtype(item, job))) for item in graded), default=0)
    built = ShardedLayout(
        weights=allocated(fixed) + (scales if fsdp.offload else base),
        adapter=0 if fsdp.offload else adapter,
        optimizer=0 if fsdp.offload else states.allocated,
        paged=0 if fsdp.offload else states.paged,
        host=per_node(job) * (states.paged + states.host),
        gradients=0 if fsdp.offload else gradients,
        trainable=sum(item.elements for item in graded),
        largest_gradient=largest // over.dense,
        step_optimizer=0 if fsdp.offload else states.temporary,
        load=_load(found, fsdp, over, job, model),
        accumulating=job.gradient_accumulation_steps > 1 and not job.longest_first,
        in_backward=spec.in_backward,
        on_host=fsdp.offload,
        version=fsdp.version,
        resident=_resident(fsdp),
        ahead=fsdp.forward_prefetch,
        keeps_last=fsdp.keeps_last,
        reused=model.shape.layers if reuses_layers(model) else 0,
        steps=1 if job.longest_first else job.gradient_accumulation_steps,
    )
    apart = fsdp.experts_apart and job.parallelism.expert > 1 and over.experts == 1
    policy = Policy(gathered_dtype(job), fsdp.mixed_precision.reduce_dtype, apart)
    built.plan = units(fsdp, model, shardable, policy)
    frozen = not any(item.graded and item.part == "base" and item.layers is not None for item in shardable)
    built.adapters = fsdp.version == 1 and frozen
    built.prefetches = not built.adapters and prefetches(fsdp)
    built.kept = kept(job, fsdp, model) if built.adapters else 0
    built.cached, built.named = cached(job, fsdp, model), job.loss.kept is True
    if job.gradient_accumulation_steps > 1 and defers(job):
        everything = built.plan.everything
        built.deferred = everything.reduced if fsdp.version == 2 else everything.gradients
    if fsdp.offload:
        built.host = host.sharded(job, base - scales + adapter, gradients, states.raw)
    built.terms = terms(job, fsdp, built, found, over)
    built.terms += derivation.optimizer(items, spec, states, job, ranks=over.dense) if not fsdp.offload else []
    return built


def defers(job: Job) -> bool:
    """Whether micro steps before the last one leave their gradients unreduced."""
    fsdp = job.parallelism.fsdp
    if fsdp is None or fsdp.sync_each_batch:
        return False
    return fsdp.version == 1 or Stack(job).does(DEFERS_FSDP2)


def _resident(fsdp: Fsdp) -> float:
    if fsdp.sharding in KEEPS_WHOLE or fsdp.reshard_after_forward is False:
        return 1.0
    return 1.0 / fsdp.reshard_after_forward if fsdp.reshard_after_forward > 1 else 0.0


def group(job: Job, fsdp: Fsdp) -> int | None:
    """The ranks over which a hybrid strategy or `shard_size` shards; None for all of them."""
    if fsdp.shard_size:
        return fsdp.shard_size
    if fsdp.sharding.strip("_").startswith("hybrid"):
        nodes = max(1, job.hardware.nodes or -(-job.world_size // 8))
        return max(1, job.data_parallel // nodes)
    return None


def _items(trained: Sequence[Parameter], over: Ranks, fsdp: Fsdp) -> list[optimizer.Item]:
    """The tensors that the optimizer of one rank has.

    Version 2: each parameter's share, a matrix cut in its first dimension. Version 1: the share of each unit's flat
    parameter (one of all without a wrap policy), or with `use_orig_params` and for adapters, whose modules are units,
    that of each parameter: as views that share its bytes among them.
    """
    if fsdp.version == 1:
        return _flat(trained, over, fsdp)
    cut = []
    for whole, parameter in zip(optimizer.items(trained), trained, strict=True):
        first = -(-whole.shape[0] // over.of(parameter)) if whole.shape else 1
        cut.append(whole._replace(shape=(first, *whole.shape[1:])))
    return cut


def _flat(trained: Sequence[Parameter], over: Ranks, fsdp: Fsdp) -> list[optimizer.Item]:
    units: dict[tuple[int | None, str, int], int] = {}
    made = []
    for item in trained:
        if fsdp.use_orig_params or item.part != "base":
            made.append(optimizer.Item((-(-item.size // over.of(item)),), item.copies, item.dtype, flat=True))
            continue
        for layer in item.layers or (None,):
            unit = layer if fsdp.wrap != "none" else None, item.dtype, over.of(item)
            units[unit] = units.get(unit, 0) + item.size
    alike = Counter((-(-size // shared), dtype) for (_, dtype, shared), size in units.items())
    return made + [optimizer.Item((size,), copies, dtype, flat=True) for (size, dtype), copies in alike.items()]


def shards(job: Job, found: Sequence[Parameter]) -> list[optimizer.Item]:
    """The tensors that the optimizer of one rank has (`_items`)."""
    fsdp = job.parallelism.fsdp
    assert fsdp is not None
    return _items([item for item in found if item.trainable], ranks(job, group(job, fsdp)), fsdp)


def _load(found: Sequence[Parameter], fsdp: Fsdp, over: Ranks, job: Job, model: Model) -> int:
    """What sharding the weights takes on the GPU.

    Packed weights are on every rank whole before those that can be are sharded, and under accelerate's version 2 beside
    all shards: `fsdp2_prepare_model` holds a state dict of the whole model to its end (1.6 to 1.15). Version 1 moves a
    unit there and concatenates its tensors to a flat parameter, twice its size, before it keeps its shard (torch 2.13
    fsdp/_init_utils.py `_move_module_to_device`, _flat_param.py `flatten_tensors`). Version 2 moves a unit
    (`_move_states_to_device`), or with `cpu_ram_efficient_loading` one tensor after the other. The root comes last:
    until then its shard is not there.
    """
    packed = [item for item in found if item.packed]
    if packed and not fsdp.cpu_ram_efficient_loading:
        sharded = [item for item in packed if not whole_on_each(item, job)]
        beside = fsdp.version == 2 and not Stack(job).native
        return allocated(sharded) - (0 if beside else over.size(sharded)) + loading(found, job)
    if fsdp.version == 2 and fsdp.cpu_ram_efficient_loading:
        return max((int(item.size * item.element_bytes) for item in found if not item.packed), default=0)
    made = units(fsdp, model, [item for item in found if not item.packed and item.part != "buffer"], Policy(None, None))
    copies = 2 if fsdp.version == 1 else 1
    largest = max(unit.gathered for unit in (made.root, made.first, made.last, made.block))
    return copies * largest - (0 if fsdp.offload else made.root.gathered // over.dense)
