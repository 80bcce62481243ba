"""PyTorch's caching allocator: what it holds from the driver for what the program holds from it.

Rules (c10/cuda/CUDACachingAllocator.cpp, c10/core/AllocatorConfig.h 2.13): a request is rounded up to 512 B; requests
up to 1 MiB share 2 MiB segments; requests below 10 MiB come from 20 MiB segments, larger ones get a segment of their
own rounded up to 2 MiB. The smallest free block that fits serves a request, and is split where more than 1 MiB is left
over (512 B in the small pool and in expandable segments). Freed neighbours are merged within a segment, never over its
end. Segments are returned only when the driver has no more, and only those that are wholly free; then the request is
tried again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, NamedTuple

from ...units import MIB

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

BLOCK = 512
SMALL_REQUEST, SMALL_SEGMENT = MIB, 2 * MIB
LARGE_REQUEST, LARGE_SEGMENT = 10 * MIB, 20 * MIB
ROUNDING = 2 * MIB

_SMALL = SMALL_REQUEST // BLOCK

ADDRESS = 35
MASK = (1 << ADDRESS) - 1
SMALL_BASE = 1 << ADDRESS - 1
"""Addresses count blocks of 512 B in 35 bits, of which the small pool has the upper half: 8 TiB each, more than a run
on any card opens. Up to 16 GiB a size and an address together are two digits of a Python integer, which is quick."""


class OutOfMemory(Exception):  # noqa: N818  (torch's name)
    """The driver has no room for a segment, with every free one given back, or the pool no address."""


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
        """The block for a request (`round_size`), and for a block itself."""
        if self.divisions > 1 and request > BLOCK * self.divisions:
            step = (1 << (request.bit_length() - 1)) // self.divisions
            request = -(-request // step) * step
        return block_size(request)


class Pool:
    """The free blocks of one pool, a stretch of a segment each; neighbours that are both free are one block.

    Sizes and addresses count blocks of 512 B.

    order    size and address in one number, ascending;  begins  size by address;  ends  address by the end
    edge     the first address that no segment has had yet;  last  where the pool's addresses end
    """

    __slots__ = ("begins", "edge", "ends", "last", "order")

    def __init__(self, base: int) -> None:
        self.edge = base
        self.last = base + SMALL_BASE
        self.order: list[int] = []
        self.begins: dict[int, int] = {}
        self.ends: dict[int, int] = {}

    def remove(self, address: int, size: int) -> None:
        """A block that is free no more."""
        del self.order[bisect_left(self.order, size << ADDRESS | address)]
        del self.begins[address], self.ends[address + size]


class Allocator:
    """One stream's blocks, which are named by their address; `sizes` are those of the ones in use, in blocks of 512 B.

    `reserved` and `allocated` are what torch reports under these names, `peak` and `most` the largest of each; `limit`
    is what the driver gives at most, None for no limit. Blocks of one stream never serve another, so each stream of a
    program has an Allocator of its own; `aside` are another's free segments, which count as reserved until the driver
    wants them back.
    """

    def __init__(self, limit: int | None = None, policy: Policy = Policy()) -> None:  # noqa: B008
        self.limit = limit
        self.policy = policy
        self.sizes: dict[int, int] = {}
        self.reserved = self.allocated = self.peak = self.most = self.aside = 0
        self._small, self._large = Pool(SMALL_BASE), Pool(0)
        self._segments: dict[int, int] = {}
        self._fine = policy.expandable
        self._split = None if policy.max_split is None else -(-policy.max_split // BLOCK)

    def take(self, request: int) -> int:
        """A block of at least `request` bytes: the best fit among the free ones, or from a new segment.

        Raises OutOfMemory where the driver has no room even with all wholly free segments given back.
        """
        size = self.blocks(request) or 1
        small = size <= _SMALL
        pool = self._small if small else self._large
        order = pool.order
        index = bisect_left(order, size << ADDRESS)
        if index < len(order) and self._may_serve(order[index] >> ADDRESS, size):
            found = order.pop(index)
            address, whole = found & MASK, found >> ADDRESS
            del pool.begins[address]
        else:
            address, whole = self._opened(size, pool)
        rest = whole - size
        if rest and (small or self._fine or (rest > _SMALL and self._may_split(size))):
            insort(order, rest << ADDRESS | address + size)
            pool.begins[address + size] = rest
            pool.ends[address + whole] = address + size
        else:
            size = whole
            pool.ends.pop(address + whole, None)
        self.sizes[address] = size
        self.allocated += size * BLOCK
        self.most = max(self.most, self.allocated)
        return address

    def blocks(self, request: int) -> int:
        """The blocks of 512 B that a request takes."""
        return self.policy.rounded(request) // BLOCK

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

    def set_aside(self, size: int) -> None:
        """Free segments that another stream leaves behind, as far as the driver has room for them."""
        room = size if self.limit is None else max(0, min(size, self.limit - self.reserved))
        self.aside += room
        self.reserved += room
        self.peak = max(self.peak, self.reserved)

    def give(self, address: int) -> None:
        """Free a block; it is merged with free neighbours of its segment."""
        size = self.sizes.pop(address)
        self.allocated -= size * BLOCK
        pool = self._small if address >= SMALL_BASE else self._large
        order, end = pool.order, address + size
        before = pool.ends.pop(address, None)
        if before is not None:
            del order[bisect_left(order, address - before << ADDRESS | before)]
            address = before
        after = pool.begins.pop(end, None)
        if after is not None:
            del order[bisect_left(order, after << ADDRESS | end)]
            end += after
        insort(order, end - address << ADDRESS | address)
        pool.begins[address] = end - address
        pool.ends[end] = address

    def run(
        self, events: Iterable[int], sizes: Sequence[int], alive: list[int], left: Container[int] = ()
    ) -> list[int]:
        """Take `sizes[number]` blocks of 512 B for each number among `events`, and give them back for each ~number.

        `alive` holds the address of each number. Those in `left` are not given back; their addresses are returned. All
        are requests of the large pool. Raises OutOfMemory.
        """
        if self._split is not None:
            return self._one_by_one(events, sizes, alive, left)
        kept: list[int] = []
        pool, held = self._large, self.sizes
        order, begins, ends = pool.order, pool.begins, pool.ends
        least = 1 if self._fine else _SMALL + 1
        allocated, most = self.allocated // BLOCK, self.most // BLOCK
        for event in events:
            if event >= 0:  # as `take`
                size = sizes[event]
                index = bisect_left(order, size << ADDRESS)
                if index < len(order):
                    found = order.pop(index)
                    address, whole = found & MASK, found >> ADDRESS
                    del begins[address]
                else:
                    self.allocated = allocated * BLOCK
                    address, whole = self._opened(size, pool)
                rest = whole - size
                if rest >= least:
                    middle = address + size
                    insort(order, rest << ADDRESS | middle)
                    begins[middle] = rest
                    ends[middle + rest] = middle
                else:
                    size = whole
                    ends.pop(address + whole, None)
                alive[event] = address
                held[address] = size
                allocated += size
                if allocated > most:
                    most = allocated
                continue
            address = alive[~event]
            if ~event in left:
                kept.append(address)
                continue
            size = held.pop(address)  # as `give`
            allocated -= size
            end = address + size
            if address in ends:
                before = ends.pop(address)
                size += address - before
                del order[bisect_left(order, address - before << ADDRESS | before)]
                address = before
            if end in begins:
                after = begins.pop(end)
                del order[bisect_left(order, after << ADDRESS | end)]
                end += after
                size += after
            insort(order, size << ADDRESS | address)
            begins[address] = size
            ends[end] = address
        self.allocated, self.most = allocated * BLOCK, most * BLOCK
        return kept

    def _one_by_one(
        self, events: Iterable[int], sizes: Sequence[int], alive: list[int], left: Container[int]
    ) -> list[int]:
        kept: list[int] = []
        for event in events:
            if event >= 0:
                alive[event] = self.take(sizes[event] * BLOCK)
            elif ~event in left:
                kept.append(alive[~event])
            else:
                self.give(alive[~event])
        return kept

    def empty_cache(self) -> None:
        """Give every segment back that is wholly free."""
        self.reserved -= self.aside
        self.aside = 0
        for pool in (self._small, self._large):
            for address, size in [*pool.begins.items()]:
                if self._segments.get(address) == size:
                    pool.remove(address, size)
                    del self._segments[address]
                    self.reserved -= size * BLOCK

    def _may_serve(self, size: int, request: int) -> bool:
        """An oversized block serves no small request, and a large one only with little left over."""
        limit = self._split
        if limit is None:
            return True
        if request < limit:
            return size < limit
        return size < request + LARGE_SEGMENT // BLOCK

    def _may_split(self, request: int) -> bool:
        return self._split is None or request < self._split

    def _opened(self, size: int, pool: Pool) -> tuple[int, int]:
        """Address and size of a new segment, which belongs to no list of free blocks. Raises OutOfMemory."""
        if self.policy.expandable:
            return self._grown(size, pool)
        segment = segment_size(size * BLOCK)
        if self.limit is not None and self.reserved + segment > self.limit:
            self.empty_cache()
            if self.reserved + segment > self.limit:
                raise OutOfMemory
        address = pool.edge
        whole = segment // BLOCK
        pool.edge += whole + 1
        if pool.edge > pool.last:
            raise OutOfMemory
        self._segments[address] = whole
        self.reserved += segment
        self.peak = max(self.peak, self.reserved)
        return address, whole

    def _grown(self, size: int, pool: Pool) -> tuple[int, int]:
        """The last block of the pool's one segment, grown by whole pages.

        Under pressure the pages of free blocks are unmapped wherever they are, so only what is in use counts.
        """
        page = (SMALL_SEGMENT if size <= _SMALL else LARGE_SEGMENT) // BLOCK
        address = pool.ends.get(pool.edge, pool.edge)
        spare = pool.edge - address
        more = -(-(size - spare) // page) * page
        self.reserved += more * BLOCK
        if self.limit is not None and self.reserved > self.limit:
            if self.allocated + size * BLOCK > self.limit:
                raise OutOfMemory
            self.reserved = self.limit
        self.peak = max(self.peak, self.reserved)
        if spare:
            pool.remove(address, spare)
        pool.edge += more
        if pool.edge > pool.last:
            raise OutOfMemory
        return address, spare + more


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
