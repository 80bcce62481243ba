"""What a rank holds under PyTorch's FSDP 1 and 2: shards, and the units that are gathered and reduced.

Source: torch 2.13, distributed/fsdp/_runtime_utils.py and _flat_param.py (version 1),
distributed/fsdp/_fully_shard/_fsdp_param_group.py and _fsdp_collectives.py (version 2).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from ...job.sharding import Fsdp
from ..peak_candidate import PeakCandidate
from ..terms import Product, Term, line, terms, total
from .sharded_state import ShardedState

if TYPE_CHECKING:
    from .fsdp_units import Unit, Units

ROOT = "root unit gathered: what is not wrapped"
ROOT_GRADIENTS = "gradients of the root's tensors, whole until the pass ends"
ROOT_REDUCED = "the root's gradients once more, for its reduction"
UNITS = "units of layers that are gathered then"
GRADIENTS = "whole gradients of the unit in hand, and what reducing them takes"

_FINISHED = "input and its gradient of each layer whose backward pass is done"
_HANDED = "of the last one's, which the layer in flight was handed"
_RETURNED = "keys and values that the layers have returned"
_NO_SYNC = "transformers 5.23 trainer.py; accelerate 1.13 no_sync: sync_each_batch is off by default"


class Part(NamedTuple):
    """Bytes of one or more units, or of their gradients, and what they are."""

    unit: Unit
    size: int
    label: str

    @property
    def formula(self) -> str:
        """By its elements where all have one width."""
        unit, size = self.unit, self.size
        if self.label not in (ROOT, UNITS):
            width = _width(unit.gradients, unit.graded)
            return f"{size:,} B" if width is None or size % width else f"{width} B x {size // width:,} elements"
        count, rest = divmod(size, unit.gathered) if unit.gathered else (0, size)
        width = _width(unit.gathered, unit.elements)
        each = f"{unit.gathered:,} B" if width is None else f"{width} B x {unit.elements:,} elements"
        return f"{size:,} B" if rest else each if count == 1 else f"{count} x {each}"

    @property
    def source(self) -> str:
        """Where torch does so."""
        if self.label == ROOT:
            return "torch FSDP: the root is not resharded"
        return "torch FSDP prefetch" if self.label == UNITS else "torch FSDP: gradients are reduced unit by unit"


def _width(size: int, elements: int) -> int | None:
    """Bytes of an element, where all have one width."""
    width = size / elements if elements else 0
    return int(width) if width in (1, 2, 4) else None


@dataclass(slots=True)
class FsdpState(ShardedState):
    """Units gathered for their forward and backward.

    fsdp              what the job states of it: its version, what it offloads, what it gathers ahead or keeps gathered
    units             the units
    gathered_share    share of every layer's unit that stays from forward to backward: 1 under a strategy that does not
                      reshard, 1/k where `reshard_after_forward` is the size k of a smaller group
    cached            bytes of keys and values that each layer returns; `named`: the loop holds them
    adapters          version 1 with frozen layers around wrapped adapter modules
    prefetches        whether backward gathers the next unit before it is done with the one in use
    kept              bytes that each finished layer's backward leaves until the end of the pass
    deferred          bytes of the whole gradients that a rank keeps while it accumulates without reducing
    steps             micro steps of an optimizer step, 1 where the first of them is the longest
    reused            how many layers the units are run as, where layers are one and the same (ALBERT); else 0
    """

    fsdp: Fsdp = field(default_factory=Fsdp)
    units: Units | None = None
    kept: int = 0
    cached: int = 0
    named: bool = False
    adapters: bool = False
    prefetches: bool = True
    gathered_share: float = 0.0
    deferred: int = 0
    steps: int = 1
    reused: int = 0

    def evaluating(self) -> FsdpState:
        """Without the caches of training's passes: those of an evaluation are counted by its own rows."""
        return replace(self, cached=0)

    def gradients_at(self, done: int) -> list[Term]:
        """The shards of the gradients complete by then; in host memory with CPU offload.

        While accumulating, the Trainer defers the reduction to the last micro step (`no_sync`), and every rank keeps
        whole gradients: in the reduce dtype under version 2, in the gathered one under version 1.
        """
        if self.deferred:
            size = self._deferred_at(done)
            return [self._deferred_term(size)] if size else []
        if self.fsdp.offload:
            return []
        return super(FsdpState, self).gradients_at(done)

    def _deferred_at(self, done: int) -> int:
        """Bytes of the gradients that are not reduced before the last micro step, and of those that it has reduced.

        Of two micro steps the first makes them and the second turns them into shards, layer by layer.
        """
        if self.trainable and not self.accumulating:
            return self.deferred * min(done, self.trainable) // self.trainable
        if self.steps > 2 or not self.trainable:
            return self.deferred
        made = -(-self.deferred * min(done, self.trainable) // self.trainable)
        if self.steps == 1:
            return made
        return max(made, self.deferred - made + (0 if self.fsdp.offload else total(self.made(done))))

    def _deferred_term(self, size: int) -> Term:
        label = "whole gradients, not reduced before the last micro step (no_sync)"
        width = _width(self.deferred, self.trainable)
        formula = f"{size:,} B" if width is None or size % width else f"{width} B x {size // width:,} elements"
        return Term("gradients", formula, size, _NO_SYNC, label)

    def activations_at(self, candidate: PeakCandidate) -> list[Term]:
        """What the finished layers' backward leaves (`kept`), and the model's cache (`cached`).

        The last finished one's input gradient is already counted: it is what the layer in flight was handed.
        """
        finished, found = 0, []
        if self.units is not None and candidate.phase == "backward" and candidate.layer is not None:
            finished = max(0, (self.reused or self.units.blocks) - 1 - candidate.layer)
        if finished and self.kept:
            layers = Product(_FINISHED, self.kept, ((finished, "layers"),))
            handed = Product(_HANDED, -(self.kept // 2))
            found = terms("activations", (layers, handed), "torch FSDP 1 with use_reentrant")
        if held := self._held(candidate):
            found.append(line("activations", held, _RETURNED, "estimator/sharding/fsdp.py"))
        return found

    def _held(self, candidate: PeakCandidate) -> int:
        """Keys and values that the layers have returned by then, and of the step before where the loop holds them.

        A name of the outputs is bound anew when the forward pass has ended.
        """
        if self.units is None or not self.cached or (candidate.phase == "backward" and not self.named):
            return 0
        if candidate.phase != "forward":
            return self.units.blocks * self.cached
        begun = self.units.blocks if candidate.layer is None else candidate.layer
        return (begun + (self.units.blocks if self.named else 0)) * self.cached

    def ending(self, candidate: PeakCandidate) -> bool:
        """Whether the root's gradients are all there, to be flattened or copied for its reduction."""
        behind = candidate.phase == "backward" and candidate.layer is None
        return behind and candidate.gradient_elements >= self.trainable > 0

    def later(self) -> list[PeakCandidate]:
        """The last layer's backward with whole gradients from before, where the longest batch is the first.

        How long the later batches are is not known.
        """
        layers = self.reused or (self.units.blocks if self.units is not None else 0)
        if not self.deferred or self.steps > 1 or self.units is None or layers < 2:
            return []
        return [PeakCandidate("backward", 0, 0, self.trainable, layers - 1, self.units.block.graded)]

    @property
    def in_backward_at_once(self) -> int:
        """Layers' units that backward holds gathered: the one in use, and the next where it is prefetched."""
        return 1 if not self.prefetches or (self.reused and self.units is not None and self.units.blocks == 1) else 2

    def buffers_at(self, candidate: PeakCandidate) -> list[Term]:
        """Gathered units and whole gradients.

        The root stays gathered through forward and backward, and so do its whole gradients once there are any.
        Forward: version 1 holds the unit in use (two with forward_prefetch); version 2 also the flat buffer of its
        all-gather, freed after the next one's copy-out. Backward: the unit in use and the prefetched one (none before
        the first layer, and where all layers are one unit), and its gradients, see `_whole_gradients`.
        """
        return [
            Term("buffers", part, part.size, part.source, part.label) for part in self._parts(candidate) if part.size
        ]

    def _parts(self, candidate: PeakCandidate) -> list[Part]:
        units = self.units
        assert units is not None
        found = [Part(units.root, units.root.gathered, ROOT)]
        found.append(Part(units.root, self._root_gradients(candidate), ROOT_GRADIENTS))
        if self.ending(candidate):
            found.append(Part(units.root, self._ended(units.root), ROOT_REDUCED))
        if not units.blocks:
            return found
        unit = self._unit(candidate)
        found.append(Part(unit, self._gathered(candidate, unit), UNITS))
        if candidate.phase != "backward":
            return found
        if self.reused and candidate.layer is not None and not self.deferred:
            return [*found, Part(unit, self._added_up(unit, candidate.layer, candidate.fresh), GRADIENTS)]
        return [*found, Part(unit, self._whole_gradients(unit, candidate.fresh), GRADIENTS)]

    def _added_up(self, unit: Unit, layer: int, fresh: int) -> int:
        """The gradients of a unit that layers have in common: AccumulateGrad runs once, behind the first layer.

        Version 1 splits the flat parameter anew for each layer, whose gradients are flattened before they are added.
        """
        assert self.units is not None
        if layer == self.reused - 1:
            return unit.made(fresh)
        last = layer == 0 or self.units.blocks > 1
        return unit.gradients * (2 if self.fsdp.version == 1 else 1) + (self._ended(unit) if last else 0)

    def _unit(self, candidate: PeakCandidate) -> Unit:
        """The unit in use; outside the layers embedding or head, where they are units."""
        assert self.units is not None
        if candidate.layer is not None:
            return self.units.block
        return max(self.units.first, self.units.last, key=lambda unit: unit.gathered)

    def _gathered(self, candidate: PeakCandidate, unit: Unit) -> int:
        """Bytes of gathered units other than the root."""
        units = self.units
        assert units is not None
        backward = candidate.phase == "backward"
        passed = units.blocks if candidate.layer is None else min(units.blocks, candidate.layer + 1)
        if candidate.layer is None and (backward or candidate.phase == "forward") and candidate.gradient_elements:
            passed = 0
        kept = int(self.gathered_share * units.until(passed))
        if candidate.layer is None:
            both = 2 if self.fsdp.version == 2 else 1
            turn = candidate.phase == "loss" or not backward
            ahead = units.block.gathered if self.fsdp.version == 2 and turn else 0
            last = units.block.gathered if self.fsdp.keeps_last_layer_gathered and passed else 0
            return max(kept, last if self.gathered_share == 1 else ahead + last) + both * unit.gathered
        if self.gathered_share == 1:
            return kept
        if backward:
            return kept + (1 if candidate.layer == 0 else self.in_backward_at_once) * unit.gathered
        return kept + unit.gathered * (2 if self.fsdp.version == 2 or self.fsdp.forward_prefetch else 1)

    def _root_gradients(self, candidate: PeakCandidate) -> int:
        """The root is reduced at the end of the pass: its head has gradients first, its embedding last."""
        assert self.units is not None
        root, done = self.units.root, candidate.gradient_elements
        if self.deferred and self.fsdp.version == 2:
            return 0
        if not self.units.blocks:
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
        if self.fsdp.version == 1:
            return self._ended(unit) + unit.gradients if fresh >= unit.graded else unit.made(fresh)
        if self.deferred and unit.reduced == unit.gradients:
            return 0 if self.steps > 2 else unit.reduced
        return unit.made(fresh) + unit.reduced

    def _ended(self, unit: Unit) -> int:
        """What a unit's finished gradients need besides themselves when they are reduced."""
        return unit.reduced if self.fsdp.version == 2 else max(unit.gradients, unit.reduced)
