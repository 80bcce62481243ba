"""What PyTorch's caching allocator holds from the driver for what the program holds from it.

Rules (c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h, default settings): a request is rounded up to
512 B; requests up to 1 MiB share 2 MiB segments; requests below 10 MiB come from 20 MiB segments, larger ones get a
segment of their own rounded up to 2 MiB. A freed block serves later requests that fit into it and is split where more
than 1 MiB is left over; segments are returned only under memory pressure and only when all of a segment is free.
"""

from __future__ import annotations

from typing import NamedTuple

from ..units import MIB

BLOCK = 512
SMALL_REQUEST, SMALL_SEGMENT = MIB, 2 * MIB
LARGE_REQUEST, LARGE_SEGMENT = 10 * MIB, 20 * MIB
ROUNDING = 2 * MIB


class Reserved(NamedTuple):
    """What torch.cuda.max_memory_reserved() reports, in bytes."""

    expected: int
    low: int
    high: int


def block_size(request: int) -> int:
    """The bytes that `max_memory_allocated` counts for one tensor of `request` bytes: a multiple of 512."""
    return max(BLOCK, -(-request // BLOCK) * BLOCK) if request else 0


def segment_size(request: int) -> int:
    """The bytes asked from the driver when no free block fits `request` bytes."""
    if request <= SMALL_REQUEST:
        return SMALL_SEGMENT
    if request < LARGE_REQUEST:
        return LARGE_SEGMENT
    return -(-request // ROUNDING) * ROUNDING


def reserved(allocated: int, transient: int = 0, recycled: int = 0) -> Reserved:
    """Reserved bytes for a peak of `allocated` bytes.

    transient   the part of `allocated` that is freed and asked for again in every step or request: all but
                weights, optimizer states, caches
    recycled    the largest transient tensors, one of each kind (for training: the fp32 logits and the largest
                weight gradient; for inference: the widest MLP intermediate)

    low         everything packed: `allocated` in whole 2 MiB segments
    expected    each kind of large tensor also has one free block that was opened for it and that what is
                allocated at the peak does not fit
    high        every transient byte has a free twin that is too scattered to serve it

    Nothing is fitted. Against a replay of the allocator over 249 recorded runs (tests/estimator/test_allocator.py)
    low holds in all, high in all but one, and expected is within 5 % on average.
    Under memory pressure wholly free segments are given back before a request fails, so a job that needs `high` does
    not yet fail at that size: compare `low` with the card to call a job impossible.
    """
    low = -(-allocated // ROUNDING) * ROUNDING
    slack = min(max(0, transient), max(0, recycled))
    expected = -(-(allocated + slack) // ROUNDING) * ROUNDING
    high = -(-(allocated + max(0, transient)) // ROUNDING) * ROUNDING + SMALL_SEGMENT
    return Reserved(expected, low, max(high, expected))
