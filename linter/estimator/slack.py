"""What a training process holds from the driver for what it holds in tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .allocator import ROUNDING, Reserved

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .estimate import Phase

RESIDENT = ("weights", "adapter", "kv_cache")

STEP = ("forward", "loss", "backward", "optimizer_step")
"""The phases that alternate in every step; an evaluation runs on blocks that training does not ask for meanwhile."""


def apart(phases: Sequence[Phase], optimizer: int) -> int:
    """Bytes if no kind of tensor ever used the freed blocks of another kind.

    Static bytes, and of every other component (gradients, step temporaries, activations, logits, buffers) the most
    that any instant holds. `optimizer` is what the optimizer keeps between steps.
    """
    steps = [phase.components for phase in phases if phase.name in STEP]
    static = max(_resident(split) for split in steps) + optimizer
    kinds = {name for split in steps for name in split} - {*RESIDENT, "optimizer"}
    temporary = max(split["optimizer"] - optimizer for split in steps)
    return static + max(0, temporary) + sum(max(split.get(name, 0) for split in steps) for name in kinds)


def reserved(allocated: int, apart_: int, *, streams: bool) -> Reserved:
    """What torch.cuda.max_memory_reserved() reports for a peak of `allocated` bytes.

    low        `allocated` in whole 2 MiB segments: every freed block is used again
    expected   one stream: half way to `apart`, since kinds share blocks as far as their sizes allow; several streams
               (FSDP, ZeRO): `apart`, since the allocator never gives a block of one stream to another
    high       as far beyond `apart` as that is beyond `allocated`

    Nothing is fitted. Tensors of 10 MiB and more have segments of their own, which are not merged, so gradients do
    not fit where larger activations were split and the other way round (c10/cuda/CUDACachingAllocator.cpp).
    """
    gap = max(0, apart_ - allocated)
    low = _segments(allocated)
    expected = _segments(allocated + (gap if streams else gap // 2))
    return Reserved(expected, low, max(expected, _segments(allocated + 2 * gap)) + ROUNDING)


def _resident(split: Mapping[str, int]) -> int:
    return sum(split.get(name, 0) for name in RESIDENT)


def _segments(size: int) -> int:
    return -(-size // ROUNDING) * ROUNDING
