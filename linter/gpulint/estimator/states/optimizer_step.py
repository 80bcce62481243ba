"""What one step of an optimizer allocates and frees again: copies of parameters, moments and updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..allocator.allocator import block_size
from ..terms import Term
from .optimizer import specification, treats_as_matrix
from .storage import dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .optimizer import Item, Spec


class Temporaries(NamedTuple):
    """Bytes that one step allocates and frees again, their arithmetic, and of an update the (bytes, how many) in it."""

    size: int
    formula: str
    blocks: tuple[tuple[int, int], ...] = ()


def step_temporaries(tensors: Sequence[Item], spec: Spec) -> Temporaries:
    """What one step takes; where matrices have a rule of their own, by that or by the other one, the larger.

    A multi-tensor implementation copies the second moment of a whole parameter group (torch/optim/adam.py
    `_multi_tensor_adam`); one that goes tensor by tensor needs its temporaries for the largest tensor; one that steps
    in the backward pass handles one tensor at a time.
    """
    if spec.rest:
        other = specification(spec.rest)._replace(in_backward=spec.in_backward)
        own = [item for item in tensors if treats_as_matrix(item)]
        left = [item for item in tensors if not treats_as_matrix(item)]
        if spec.name.startswith(("galore", "apollo")):  # one group (transformers trainer `_setup_low_rank_optimizer`)
            left = [item._replace(decay=True) for item in left]
        alone = step_temporaries(own, spec._replace(rest=None)), step_temporaries(left, other)
        return max(*alone, _between(own, left, spec))
    if not tensors:
        return Temporaries(0, "")
    if spec.foreach:
        return _copies(tensors, spec)
    full, half = spec.largest
    stepped = sorted(tensors, key=lambda item: item.end)
    layered = [item for item in stepped if item.copies > 1]  # a layer's first tensor follows the last of the one before
    return max(_largest(stepped, spec, full, half), _largest([*layered, *layered], spec, full, half))


def step_terms(tensors: Sequence[Item], spec: Spec, name: str, size: int | None = None) -> list[Term]:
    """The temporaries of a step of the optimizer `name`; `size` bytes of them where others are there then anyway."""
    whole = step_temporaries(tensors, spec)
    size = whole.size if size is None else size
    formula = whole.formula if size == whole.size else f"{size:,} B"
    label = f"temporaries of {name}'s step, freed after it"
    return [Term("optimizer", formula, size, spec.source, label)] if size else []


def step_blocks(tensors: Sequence[Item], spec: Spec) -> list[tuple[int, int]]:
    """(bytes, how many) of the temporaries that one step allocates: of a group's tensors, or of the largest update."""
    if not spec.foreach or spec.in_backward:
        return list(step_temporaries(tensors, spec).blocks)
    groups: dict[tuple[bool, str], list[tuple[int, int]]] = {}
    for item in tensors:
        size = int(item.size * dtype_bytes(item.dtype))
        groups.setdefault((item.decay, item.dtype), []).append((size, spec.foreach * item.copies))
    return max(groups.values(), key=lambda sizes: sum(size * count for size, count in sizes), default=[])


def _copies(tensors: Sequence[Item], spec: Spec) -> Temporaries:
    """Copies of a whole parameter group at once, or in the backward pass of one tensor after the other."""
    groups: dict[tuple[object, str], list[int]] = {}
    for item in tensors:
        key = item if spec.in_backward else item.decay
        size = block_size(int(item.size * dtype_bytes(item.dtype)))
        copies = 1 if spec.in_backward else item.copies
        found = groups.setdefault((key, item.dtype), [0, 0])
        found[0] += copies * size
        found[1] += copies * item.size
    (_, dtype), (size, count) = max(groups.items(), key=lambda group: group[1][0])
    what = "of the largest tensor" if spec.in_backward else "of the largest parameter group"
    times = f"{spec.foreach} x " if spec.foreach > 1 else ""
    return Temporaries(spec.foreach * size, f"{times}{dtype_bytes(dtype):g} B x {count:,} elements {what}")


def _between(own: Sequence[Item], left: Sequence[Item], spec: Spec) -> Temporaries:
    """GaLore's first decomposition, while the update of the last of the other tensors and its denominator, or its
    parameter in float32, still have names."""
    if not own or not left or not spec.square or not spec.previous or spec.in_backward:
        return Temporaries(0, "")
    last, (full, half) = left[-1], spec.largest
    wide = last.dtype == "float32"
    named = 2 * dtype_bytes(last.dtype) if spec.previous == "parameter" else 4 if wide else 8
    first = _largest(own[:1], spec, full, half)
    return Temporaries(
        int(named * last.size) + first.size,
        f"{named:g} B x {last.size:,} elements of the last vector + {first.formula}",
        ((int(named * last.size), 1), *first.blocks),
    )


def _largest(tensors: Sequence[Item], spec: Spec, full: float, half: float) -> Temporaries:
    """The most that one tensor's update takes, `full` or `half` float32 copies of it, with what the one before left."""
    most, before = Temporaries(0, ""), 0
    for item in tensors:
        copies = half if item.dtype in ("bfloat16", "float16") else full
        kept = before if spec.previous and not spec.in_backward else 0
        square = min(item.shape[-2:]) ** 2 if spec.square else 0
        size = int(copies * 4 * item.size) + 4 * square + kept
        if size > most.size:
            parts = [f"{copies:g} x 4 B x {item.size:,} elements of one tensor"]
            parts += [f"4 B x {square:,} elements of a square"] if square else []
            parts += [f"{kept:,} B of the one before"] if kept else []
            whole, part = int(copies), int(copies % 1 * 4 * item.size)
            blocks = (4 * item.size, whole), (part, 1), (4 * square, 1), (kept, 1)
            most = Temporaries(size, " + ".join(parts), tuple(block for block in blocks if block[0]))
        width = dtype_bytes(item.dtype) if spec.previous == "parameter" else 4
        before = int(width * item.size) if item.decay else before
    return most
