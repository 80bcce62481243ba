"""What a training process holds from the driver for what it holds in tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .allocator import ROUNDING, Reserved

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .estimate import Phase

RESIDENT = ("weights", "adapter", "kv_cache")

ALLOWANCE = 4
"""The part of what comes and goes that may be scattered, one in so many."""

STEP = ("forward", "loss", "backward", "optimizer_step")
"""The phases that alternate in every step; an evaluation runs on blocks that training does not ask for meanwhile."""


class Apart(NamedTuple):
    """Bytes if no kind of tensor ever used the freed blocks of another kind: what stays, and what comes and goes."""

    static: int
    transient: int

    @property
    def total(self) -> int:
        """Both together."""
        return self.static + self.transient


def apart(phases: Sequence[Phase], optimizer: int) -> Apart:
    """Static bytes, and of every other component the most that any instant of a step holds, added up.

    Components: gradients, step temporaries, activations, logits, buffers. `optimizer` is what the optimizer keeps
    between steps.
    """
    steps = [phase.components for phase in phases if phase.name in STEP]
    static = max(_resident(split) for split in steps) + optimizer
    kinds = {name for split in steps for name in split} - {*RESIDENT, "optimizer"}
    temporary = max(split["optimizer"] - optimizer for split in steps)
    return Apart(static, max(0, temporary) + sum(max(split.get(name, 0) for split in steps) for name in kinds))


def reserved(allocated: int, kinds: Apart, *, streams: bool) -> Reserved:
    """What torch.cuda.max_memory_reserved() reports for a peak of `allocated` bytes.

    low        `allocated` in whole 2 MiB segments: every freed block is used again
    expected   one stream: half way to `kinds` apart, since they share blocks as far as their sizes allow; several
               streams (FSDP, ZeRO): apart, since the allocator never gives a block of one stream to another
    high       as far beyond apart as that is beyond `allocated`, and at least a quarter of what comes and goes

    Tensors of 10 MiB and more have segments of their own, which are not merged, so gradients do not fit where larger
    activations were split and the other way round (c10/cuda/CUDACachingAllocator.cpp). The quarter is an allowance for
    blocks of one kind that are too scattered for the next request of the same kind.
    """
    gap = max(0, kinds.total - allocated)
    low = _segments(allocated)
    expected = _segments(allocated + (gap if streams else gap // 2))
    beyond = max(gap, kinds.transient // ALLOWANCE)
    return Reserved(expected, low, max(expected, _segments(allocated + gap + beyond)) + ROUNDING)


def _resident(split: Mapping[str, int]) -> int:
    return sum(split.get(name, 0) for name in RESIDENT)


def _segments(size: int) -> int:
    return -(-size // ROUNDING) * ROUNDING
