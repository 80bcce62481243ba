"""vLLM's paged KV cache: blocks, groups of layers that share a pool, and what one request may take.

A block holds `block_size` tokens of every layer of a group. Layers of one kind form one group; a hybrid model's kinds
(full, each window, recurrent) are cut into groups of equal layer counts that draw blocks from one pool, so a block
costs the widest layer's page times the layers of a group whichever kind it serves: blocks of layers whose tokens take a
whole fraction of that hold so many times the tokens (`unify_kv_cache_spec_page_size`).

    pages of one request   full: ceil(n / block);  window w: ceil(min(w - 1 + batched tokens, n) / block) + 1;
                           chunk c: ceil(min(c + batched tokens, n) / block);  recurrent: 1, more with prefix caching
                           cross-attention to an encoder: ceil(its positions / block), a group beside the layers' own
    tokens of the cache    blocks // groups * the block size of the group with the shortest; since 0.20.2 the requests
                           that fit, times their length

Source: vllm/v1/core/kv_cache_utils.py `_get_kv_cache_groups_uniform_page_size`, `get_kv_cache_config_from_groups`,
`check_enough_kv_cache_memory`; vllm/v1/kv_cache_interface.py `max_memory_usage_bytes` (0.11 to 0.33). "Batched tokens"
are those in flight: of two batches where scheduling runs ahead (vllm/config/vllm.py `max_in_flight_tokens`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...states.tensor_parallel import fullest_stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..layer_cache import LayerCache


class Group(NamedTuple):
    """`groups` groups of layers that keep tokens alike. `window` None keeps all; `recurrent` keeps a state instead.

    `block_size` is the group's own, where a block holds other numbers of tokens of other groups. `encoder` positions
    are kept of every request instead of its tokens (`CrossAttentionSpec`). `states` are the blocks of states that a
    request keeps; 0: one for each block of tokens. `own` bytes of a block are of all the groups' own layers, where
    that is less than what a block takes.
    """

    groups: int
    window: int | None
    recurrent: bool
    block_size: int | None = None
    encoder: int = 0
    states: int = 1
    own: int = 0


class PagedCache(NamedTuple):
    """The shape of the pool. `block_bytes` is one block of one group of layers, on one rank.

    `windows_grow`: what groups with windows take counts as a token's; without, they are taken to be full
    (DeepSeek V4, whose windows are shorter than a block). `by_bytes`: the log's concurrency counts the bytes of a
    request's own layers in blocks of the first group's (`get_max_concurrency_for_kv_cache_config` of 0.23).
    """

    block_size: int
    block_bytes: int
    groups: tuple[Group, ...]
    windows_grow: bool = False
    by_bytes: bool = False

    @property
    def bytes_per_token(self) -> int:
        """Bytes of the pool that a token takes while no window is full; behind all windows without `windows_grow`.

        What the log's tokens divide the pool by, where no group has a block size of its own.
        """
        if any(group.block_size for group in self.groups):
            kept = (group for group in self.groups if self.windows_grow or group.window is None)
            return sum(group.groups * self.block_bytes // (group.block_size or self.block_size) for group in kept)
        return self.block_bytes * sum(group.groups for group in self.groups) // self.block_size

    def blocks(self, size: int) -> int:
        """Blocks that `size` bytes hold."""
        return max(0, size) // self.block_bytes if self.block_bytes else 0

    def tokens(self, size: int, length: int) -> int:
        """Tokens that the log of versions before 0.20.2 prints for a pool of `size` bytes and requests of `length`.

        As many of each group as its blocks are long, of the shortest; one of states counts as a whole request.
        """
        groups = sum(group.groups for group in self.groups)
        if not groups:
            return 0
        states = min(length, self.block_size)
        own = [group.block_size or (states if group.recurrent else self.block_size) for group in self.groups]
        return self.blocks(size) // groups * min(own)

    def request_blocks(self, length: int, batched_tokens: int) -> int:
        """Blocks that one request of `length` tokens may take."""
        return sum(
            group.groups * _pages(group, length, batched_tokens, group.block_size or self.block_size)
            for group in self.groups
        )

    def request_bytes(self, length: int, batched_tokens: int) -> int:
        """Bytes that one request of `length` tokens may take."""
        return self.request_blocks(length, batched_tokens) * self.block_bytes

    def concurrency(self, size: int, length: int, batched_tokens: int) -> float:
        """How many requests of `length` tokens a pool of `size` bytes holds."""
        needed = self.request_blocks(length, batched_tokens)
        if self.by_bytes:
            held = sum(
                group.own * _pages(group, length, batched_tokens, group.block_size or self.block_size)
                for group in self.groups
            )
            needed = -(-held // self.groups[0].own)
        return self.blocks(size) / needed if needed else 0.0

    def longest(self, size: int, limit: int, batched_tokens: int) -> int:
        """The longest request up to `limit` tokens for which a pool of `size` bytes has room; 0 for none."""
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            if self.request_bytes(middle, batched_tokens) <= size:
                low = middle
            else:
                high = middle - 1
        return low


def paged_cache(
    caches: Sequence[LayerCache],
    element: float,
    block_size: int,
    *,
    tensor: int = 1,
    pipeline: int = 1,
    group_ratio: float = 1.5,
    state: float | None = None,
    convolution: float | None = None,
    state_blocks: int = 1,
) -> PagedCache:
    """The pool of the fullest rank.

    `element` bytes of a cached element, `convolution` of one that a convolution keeps, which is the model's whatever
    `kv_cache_dtype` says, `state` of a recurrent state's, by default a convolution's (`MambaStateDtypeCalculator`).
    `state_blocks` is `Group.states`.
    """
    kept = element if convolution is None else convolution
    pages = [round(cache.token_elements(tensor) * element) for cache in caches]
    states = [
        round(-(-cache.conv // tensor) * kept + -(-cache.recurrent // tensor) * (state or kept)) for cache in caches
    ]
    widest, mixed = (
        max(pages, default=0),
        len({(cache.window, bool(cache.cross)) for cache in caches if cache.grows}) > 1,
    )
    counts: dict[tuple[int | None, bool, int, int], int] = {}
    for cache, page in zip(caches, pages, strict=True):
        ratio = widest // page if page and mixed and not any(states) and widest % page == 0 else 1
        if cache.grows:
            key = (cache.window, False, 0, ratio)
            counts[key] = counts.get(key, 0) + 1
        if cache.grows and cache.cross:
            read = (None, False, cache.cross // cache.token_elements(), 1)
            counts[read] = counts.get(read, 0) + 1
        if cache.conv or cache.recurrent:
            counts[None, True, 0, 1] = counts.get((None, True, 0, 1), 0) + 1
    if len(counts) <= 1 and not any(states):
        window = next(iter(counts))[0] if counts else None
        block = fullest_stage([page * block_size for page in pages], pipeline)
        return PagedCache(block_size, block, (Group(1, window, False),) if counts else (), windows_grow=True)
    page = widest * block_size
    if any(states):
        block_size, page = _stretched(block_size, widest, max(states))
    stages = {key: -(-count // pipeline) for key, count in counts.items()}
    layers = _group_layers(list(stages.values()), group_ratio)
    apart = any(ratio > 1 for *_, ratio in stages)
    groups = tuple(
        Group(-(-count // layers), window, recurrent, block_size * ratio if apart else None, encoder, state_blocks)
        for (window, recurrent, encoder, ratio), count in stages.items()
    )
    return PagedCache(block_size, page * layers, groups, windows_grow=True)


def _group_layers(counts: list[int], ratio: float) -> int:
    """Layers of a group: the smaller kind's, or the larger kind's where they are nearly as many."""
    smallest, largest = min(counts), max(counts)
    return largest if largest < smallest * ratio else smallest


def _stretched(block_size: int, page: int, state: int) -> tuple[int, int]:
    """A block of attention is made long enough for a recurrent state to fit its page (in steps of the block size).

    Source: vllm/model_executor/models/config.py HybridAttentionMambaModelConfig.
    """
    if not page:
        return block_size, state
    tokens = -(-state // page)
    stretched = -(-tokens // block_size) * block_size
    return stretched, max(stretched * page, state)


def _pages(group: Group, length: int, batched_tokens: int, block_size: int) -> int:
    if group.recurrent and group.states:
        return group.states
    if group.encoder:
        return -(-group.encoder // block_size)
    if group.window is None:
        return -(-length // block_size)
    return -(-min(group.window - 1 + batched_tokens, length) // block_size) + 1
