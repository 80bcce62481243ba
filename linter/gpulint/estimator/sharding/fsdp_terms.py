"""The arithmetic of an FSDP layout, line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..estimate import Term
from ..explain import derivation
from ..states.parameters import allocated
from .fsdp_units import whole_on_each

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...job.job import Fsdp, Job
    from ..states.parameter import Parameter
    from ..states.ranks import Ranks
    from .fsdp import ShardedLayout
    from .fsdp_units import Unit


ROOT = "root unit gathered: what is not wrapped"
ROOT_GRADIENTS = "gradients of the root's tensors, whole until the pass ends"
ROOT_REDUCED = "the root's gradients once more, for its reduction"
UNITS = "units of layers that are gathered then"
GRADIENTS = "whole gradients of the unit in hand, and what reducing them takes"


class Part(NamedTuple):
    """Bytes of one or more units, or of their gradients, and what they are."""

    unit: Unit
    size: int
    label: str


def part_term(part: Part) -> Term:
    """The line of a part, by its elements where all have one width."""
    unit, size = part.unit, part.size
    if part.label in (ROOT, UNITS):
        count, rest = divmod(size, unit.gathered) if unit.gathered else (0, size)
        each = (
            f"{unit.gathered:,} B"
            if (width := _width(unit.gathered, unit.elements)) is None
            else (f"{width} B x {unit.elements:,} elements")
        )
        formula = f"{size:,} B" if rest else each if count == 1 else f"{count} x {each}"
        source = "torch FSDP: the root is not resharded" if part.label == ROOT else "torch FSDP prefetch"
        return Term("buffers", formula, size, source, part.label)
    width = _width(unit.gradients, unit.graded)
    formula = f"{size:,} B" if width is None or size % width else f"{width} B x {size // width:,} elements"
    return Term("buffers", formula, size, "torch FSDP: gradients are reduced unit by unit", part.label)


def deferred_term(built: ShardedLayout, size: int) -> Term:
    """The line of whole gradients that are not reduced before the last micro step, as far as they are there."""
    label = "whole gradients, not reduced before the last micro step (no_sync)"
    source = "transformers 5.23 trainer.py; accelerate 1.13 no_sync: sync_each_batch is off by default"
    width = _width(built.deferred, built.trainable)
    formula = f"{size:,} B" if width is None or size % width else f"{width} B x {size // width:,} elements"
    return Term("gradients", formula, size, source, label)


def _width(size: int, elements: int) -> int | None:
    """Bytes of an element, where all have one width."""
    width = size / elements if elements else 0
    return int(width) if width in (1, 2, 4) else None


def terms(job: Job, fsdp: Fsdp, built: ShardedLayout, found: Sequence[Parameter], over: Ranks) -> list[Term]:
    """Weights and gradients as they are sharded, and what finished layers leave; gathered units are `part_term`s."""
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
        lines += [Term("weights", f"{kept:,} B", kept, "bitsandbytes Params4bit.to, QuantState", note)] if kept else []
    else:
        lines += [*derivation.weights(shardable, over), *derivation.gradients(graded, job, over)]
    swept = sum(item.elements for item in found if item.swept)
    if swept:
        note = f"{swept:,} frozen elements share flat parameters with trained ones, and get gradients too"
        lines.append(Term("gradients", note, 0, "torch 2.13 distributed/fsdp/wrap.py _validate_frozen_params"))
    if built.kept:
        layers = (built.reused or built.plan.blocks) - 1
        note = f"input and input gradient of {layers} frozen layers, kept to the end of the backward pass"
        lines.append(Term("activations", note, built.kept * layers, "torch FSDP 1 with use_reentrant"))
    return lines
