"""The arithmetic of an FSDP layout, line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import derivation
from ..estimate import Term
from ..states.parameters import allocated
from .fsdp_units import whole_on_each

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...job import Fsdp, Job
    from ..states.parameter import Parameter
    from ..states.ranks import Ranks
    from .fsdp import ShardedLayout
    from .fsdp_units import Unit


def _gathered(unit: Unit) -> str:
    """A unit's bytes by its elements, where all have one width."""
    width = unit.gathered / unit.elements if unit.elements else 0
    return f"{width:g} B x {unit.elements:,} elements" if width in (1, 2, 4) else f"{unit.gathered:,} B"


def terms(job: Job, fsdp: Fsdp, built: ShardedLayout, found: Sequence[Parameter], over: Ranks) -> list[Term]:
    """Weights and gradients as they are sharded, the gathered units, and what finished layers leave."""
    assert built.plan is not None
    shardable = [item for item in found if item.part != "buffer" and not whole_on_each(item, job)]
    fixed = [item for item in found if item.part == "buffer" or whole_on_each(item, job)]
    graded = [item for item in found if item.graded]
    lines = [*derivation.weights(fixed)]
    if fsdp.offload:
        note = "shards of weights, gradients and optimizer states in main memory (offload_params)"
        lines.append(Term("optimizer", note, 0, "torch FSDP CPUOffload"))
        note = "scales and tables of packed weights, which are no parameters and stay on every GPU"
        kept = built.weights - allocated(fixed)
        lines += [Term("weights", note, kept, "bitsandbytes Params4bit.to, QuantState")] if kept else []
    else:
        lines += [*derivation.weights(shardable, over), *derivation.gradients(graded, job, over)]
    swept = sum(item.elements for item in found if item.swept)
    if swept:
        note = f"{swept:,} frozen elements share flat parameters with trained ones, and get gradients too"
        lines.append(Term("gradients", note, 0, "torch 2.13 distributed/fsdp/wrap.py _validate_frozen_params"))
    if built.deferred:
        note = f"whole gradients of {built.trainable:,} elements, not reduced before the last micro step (no_sync)"
        source = "transformers 5.23 trainer.py; accelerate 1.13 no_sync: sync_each_batch is off by default"
        lines.append(Term("gradients", note, built.deferred, source))
    root, block = built.plan.root, built.plan.block
    label = "root unit gathered: what is not wrapped"
    lines.append(Term("buffers", _gathered(root), root.gathered, "torch FSDP: the root is not resharded", label))
    if built.plan.blocks:
        both = built.in_backward_at_once
        formula = f"{both} x {_gathered(block)}" if both > 1 else _gathered(block)
        alone = "the unit that all layers are" if built.reused and built.plan.blocks == 1 else "one wrapped unit"
        label = "two wrapped units in backward" if both > 1 else alone
        lines.append(Term("buffers", formula, both * block.gathered, "torch FSDP prefetch", label))
    if built.kept:
        layers = (built.reused or built.plan.blocks) - 1
        note = f"input and input gradient of {layers} frozen layers, kept to the end of the backward pass"
        lines.append(Term("activations", note, built.kept * layers, "torch FSDP 1 with use_reentrant"))
    return lines
