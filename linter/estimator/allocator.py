"""PyTorch's caching allocator: what it holds from the driver for what the program holds from it.

Rules (c10/cuda/CUDACachingAllocator.cpp, c10/core/AllocatorConfig.h 2.13): a request is rounded up to 512 B; requests
up to 1 MiB share 2 MiB segments; requests below 10 MiB come from 20 MiB segments, larger ones get a segment of their
own rounded up to 2 MiB. The smallest free block that fits serves a request, and is split where more than 1 MiB is left
over (512 B in the small pool). Freed neighbours are merged within a segment, never over its end. Segments are returned
only when the driver has no more, and only those that are wholly free; then the request is tried again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import NamedTuple

from ..units import MIB

BLOCK = 512
SMALL_REQUEST, SMALL_SEGMENT = MIB, 2 * MIB
LARGE_REQUEST, LARGE_SEGMENT = 10 * MIB, 20 * MIB
ROUNDING = 2 * MIB


class OutOfMemory(Exception):  # noqa: N818  (torch's name)
    """The driver has no room for a segment, with every free one given back."""


class Policy(NamedTuple):
    """PYTORCH_CUDA_ALLOC_CONF, as far as it moves memory.

    expandable   one segment that grows in pages of 20 MiB (2 MiB in the small pool) instead of many
    max_split    bytes from which a block is neither split nor given to a smaller request
    divisions    requests are rounded up to the next of so many steps between two powers of two
    """

    expandable: bool = False
    max_split: int | None = None
    divisions: int = 0

    def rounded(self, request: int) -> int:
        """The block for a request (`round_size`)."""
        if self.divisions > 1 and request > BLOCK * self.divisions:
            step = (1 << (request.bit_length() - 1)) // self.divisions
            return -(-request // step) * step
        return block_size(request)


class Block:
    """A stretch of a segment between its neighbours, in use or `free` in its pool."""

    __slots__ = ("address", "after", "before", "free", "pool", "size")

    def __init__(self, address: int, size: int, pool: list[tuple[int, int, Block]]) -> None:
        self.address = address
        self.size = size
        self.pool = pool
        self.before: Block | None = None
        self.after: Block | None = None
        self.free = False


class Allocator:
    """One stream's blocks.

    `reserved` and `allocated` are what torch reports under these names, `peak` and `most` the largest of each; `limit`
    is what the driver gives at most, None for no limit. Blocks of one stream never serve another, so each stream of a
    program has an Allocator of its own.
    """

    def __init__(self, limit: int | None = None, policy: Policy = Policy()) -> None:  # noqa: B008
        self.limit = limit
        self.policy = policy
        self._plain = policy == Policy()
        self.reserved = self.allocated = self.peak = self.most = 0
        self._small: list[tuple[int, int, Block]] = []
        self._large: list[tuple[int, int, Block]] = []
        self._address = 0
        self._ends: dict[int, Block] = {}

    def take(self, request: int) -> Block:
        """A block of at least `request` bytes: the best fit among the free ones, or from a new segment.

        Raises OutOfMemory where the driver has no room even with all wholly free segments given back.
        """
        plain = self._plain
        size = -(-request // BLOCK) * BLOCK or BLOCK if plain else self.policy.rounded(request)
        small = size <= SMALL_REQUEST
        pool = self._small if small else self._large
        index = bisect_left(pool, (size,))
        if index < len(pool) and (plain or self._may_serve(pool[index][0], size)):
            block = pool.pop(index)[2]
        else:
            block = self._opened(size, pool)
        rest = block.size - size
        if rest >= BLOCK if small else rest > SMALL_REQUEST and (plain or self._may_split(size)):
            self._split(block, size, pool)
        block.free = False
        self.allocated += block.size
        if self.allocated > self.most:
            self.most = self.allocated
        return block

    def hold(self, request: int, count: int = 1) -> None:
        """Blocks that are never freed, without keeping track of where they lie.

        Equal ones share 20 MiB segments as far as they fit. Raises OutOfMemory.
        """
        size = self.policy.rounded(request) if request else 0
        if self.policy.expandable or size >= LARGE_REQUEST or not size:
            more = count * (size if self.policy.expandable else segments(size))
        else:
            segment = segment_size(size)
            more = -(-count // (segment // size)) * segment
        self.allocated += count * size
        self.most = max(self.most, self.allocated)
        self.reserved += more
        self.peak = max(self.peak, self.reserved)
        if self.limit is not None and self.reserved > self.limit:
            raise OutOfMemory

    def give(self, block: Block) -> None:
        """Free a block; it is merged with free neighbours of its segment."""
        pool = block.pool
        self.allocated -= block.size
        before, after = block.before, block.after
        if before is not None and before.free:
            del pool[bisect_left(pool, (before.size, before.address))]
            before.size += block.size
            before.after = after
            if after is not None:
                after.before = before
            if self._ends:
                self._moved_end(pool, block, before)
            block = before
        if after is not None and after.free:
            del pool[bisect_left(pool, (after.size, after.address))]
            block.size += after.size
            block.after = after.after
            if after.after is not None:
                after.after.before = block
            if self._ends:
                self._moved_end(pool, after, block)
        block.free = True
        insort(pool, (block.size, block.address, block))

    def empty_cache(self) -> None:
        """Give every segment back that is wholly free."""
        for pool in (self._small, self._large):
            kept = []
            for item in pool:
                block = item[2]
                if block.before is None and block.after is None and id(pool) not in self._ends:
                    self.reserved -= block.size
                else:
                    kept.append(item)
            pool[:] = kept

    def _may_serve(self, size: int, request: int) -> bool:
        """An oversized block serves no small request, and a large one only with little left over."""
        limit = self.policy.max_split
        if limit is None:
            return True
        if request < limit:
            return size < limit
        return size < request + LARGE_SEGMENT

    def _may_split(self, request: int) -> bool:
        return self.policy.max_split is None or request < self.policy.max_split

    def _opened(self, size: int, pool: list[tuple[int, int, Block]]) -> Block:
        if self.policy.expandable:
            return self._grown(size, pool)
        segment = segment_size(size)
        if self.limit is not None and self.reserved + segment > self.limit:
            self.empty_cache()
            if self.reserved + segment > self.limit:
                raise OutOfMemory
        block = Block(self._address, segment, pool)
        self._address += segment + ROUNDING
        self.reserved += segment
        self.peak = max(self.peak, self.reserved)
        return block

    def _grown(self, size: int, pool: list[tuple[int, int, Block]]) -> Block:
        """The last block of the pool's one segment, grown by whole pages.

        Under pressure the pages of free blocks are unmapped wherever they are, so only what is in use counts.
        """
        page = SMALL_SEGMENT if size <= SMALL_REQUEST else LARGE_SEGMENT
        end = self._ends.get(id(pool))
        spare = end.size if end is not None and end.free else 0
        more = -(-(size - spare) // page) * page
        self.reserved += more
        if self.limit is not None and self.reserved > self.limit:
            if self.allocated + size > self.limit:
                raise OutOfMemory
            self.reserved = self.limit
        self.peak = max(self.peak, self.reserved)
        if end is not None and end.free:
            del pool[bisect_left(pool, (end.size, end.address))]
            end.size += more
            return end
        block = Block(0 if end is None else end.address + end.size, more, pool)
        block.before = end
        if end is not None:
            end.after = block
        self._ends[id(pool)] = block
        return block

    def _split(self, block: Block, size: int, pool: list[tuple[int, int, Block]]) -> None:
        rest = Block(block.address + size, block.size - size, pool)
        rest.before, rest.after = block, block.after
        if block.after is not None:
            block.after.before = rest
        block.after = rest
        block.size = size
        rest.free = True
        insort(pool, (rest.size, rest.address, rest))
        if self._ends:
            self._moved_end(pool, block, rest)

    def _moved_end(self, pool: list[tuple[int, int, Block]], old: Block, new: Block) -> None:
        if self._ends.get(id(pool)) is old:
            self._ends[id(pool)] = new


class Reserved(NamedTuple):
    """What torch.cuda.max_memory_reserved() reports, in bytes."""

    expected: int
    low: int
    high: int


def block_size(request: int) -> int:
    """The bytes that `max_memory_allocated` counts for one tensor of `request` bytes: a multiple of 512."""
    return max(BLOCK, -(-request // BLOCK) * BLOCK) if request else 0


def segments(size: int) -> int:
    """`size` in whole 2 MiB."""
    return -(-size // ROUNDING) * ROUNDING


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
