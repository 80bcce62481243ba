"""The caches of DeepSeek V4's layers: a window of keys, and what compressors make of the tokens behind it.

D head dim, I indexer's key, r tokens that one entry stands for, c 2 where neighbouring entries overlap (r = 4), else 1.

    each token      (D + I) / r elements, I only with r = 4; nothing in a layer without a compressor
    each sequence   a window of D elements a token, and c r tokens of the compressor's state, 2 c (D + I) each, float32

In vLLM D takes 584 B (448 fp8, 64 of 16 bits, 8 scales) and I its fp8 with a scale of 4 B; all of it is whole on every
tensor-parallel rank. Four kinds of pages share one pool: entries (256 tokens), windows (64), and the states of both
compressors (4 and 8). A request keeps windows and states for all tokens in flight, which is why its first tokens are
dear. What a block takes went by the release (v1/core/kv_cache_utils.py):

    before 0.23  a page of each size of the entries, times the layers of the largest group (`layer_tuple_page_bytes`)
    0.23         of each size of pages as many as the group with most of them has (`_bucket_layers_by_page_size`)
    0.31         as much as the largest group (`_get_kv_cache_bytes_per_block`; seen in 0.31.1.dev50, 554340f3)

and before 0.31 the log's concurrency counts the bytes of a request's own pages over those of a block of entries.
Source: vllm 0.28 models/deepseek_v4/attention.py, compressor.py, v1/attention/backends/mla/sparse_swa.py,
v1/core/kv_cache_utils.py `_get_kv_cache_groups_uniform_groups`, `_max_memory_usage_bytes_from_groups`,
`get_max_concurrency_for_kv_cache_config`; transformers 5.23 models/deepseek_v4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....upstream.serving.vllm import COMPRESSED_BUCKETS, LARGEST_GROUP
from .paged_cache import Group, PagedCache

if TYPE_CHECKING:
    from ....models.model import Model, Shape

RATIOS = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
"""Tokens of one entry, by the kind of layer."""

_OVERLAPS = 4
_WINDOW = 128
"""transformers' DeepseekV4Config.sliding_window"""
_ENTRY, _SCALE, _STATE, _ALIGNMENT = 584, 4, 4, 576
"""Bytes of an entry, of the scale of an indexer's key, of an element of a state, and of what pages are multiples of."""
_BLOCK, _WINDOW_BLOCK = 256, 64
_STATE_BLOCKS = {4: 4, 128: 8}
"""Tokens of a page of states, by ratio."""


def compresses(shape: Shape) -> bool:
    """Whether the model has such layers."""
    return any(kind in RATIOS for kind in shape.layer_types)


def elements(model: Model, layer: int) -> tuple[int, int]:
    """Elements for each token, and for each sequence, of one layer."""
    shape = model.shape
    ratio, width = RATIOS.get(shape.layer_types[layer], 0), _width(shape, layer)
    overlap = _overlap(ratio)
    return (width // ratio if ratio else 0), window(model) * shape.head_dim + 2 * overlap**2 * ratio * width


def compressed_pool(model: Model, pipeline: int = 1, version: str | None = None) -> PagedCache:
    """vLLM's pool of the fullest stage: its block, and the groups of layers that draw from it."""
    shape = model.shape
    stage = -(-shape.layers // pipeline)
    kinds = [RATIOS.get(kind, 0) for kind in shape.layer_types[-stage:]]
    sparse, heavy = kinds.count(4), kinds.count(128)
    entry = _aligned(_BLOCK // 4 * _ENTRY)
    key = _aligned(_BLOCK // 4 * (shape.index_head_dim + _SCALE)) if sparse and shape.indexer_layers else 0
    folded = _aligned(_BLOCK // 128 * _ENTRY)
    counts = [max(sparse, heavy), stage, sparse, heavy]
    tuples = _least_padding(counts)
    every = sparse * (entry + key) + heavy * folded
    groups, widest, layers = [Group(1, None, False, _BLOCK, own=every)], every, counts[0]
    for count, kept, tokens, page in (
        (stage, window(model), _WINDOW_BLOCK, entry),
        (sparse, _OVERLAPS * 2, _STATE_BLOCKS[_OVERLAPS], entry + key),
        (heavy, 128, _STATE_BLOCKS[128], entry),
    ):
        if count:
            number = -(-count // tuples)
            groups.append(Group(number, kept, False, tokens, own=count * page))
            layers, widest = max(layers, -(-count // number)), max(widest, -(-count // number) * page)
    sizes = (entry if sparse else 0) + key + (folded if heavy else 0)
    block = widest
    largest = LARGEST_GROUP.at(version)
    if not largest:
        buckets = layers * entry + sparse * key + heavy * folded
        block = buckets if COMPRESSED_BUCKETS.at(version) else layers * sizes
    return PagedCache(_BLOCK, block, tuple(groups), by_bytes=not largest)


def _least_padding(counts: list[int]) -> int:
    """The number of layers, at least the entries', to which groups are padded with the least waste; ties take more."""
    least, counts = counts[0], [count for count in counts if count]
    return min(range(max(1, least), max(counts) + 1), key=lambda size: (sum(-count % size for count in counts), -size))


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _width(shape: Shape, layer: int) -> int:
    return shape.head_dim + (shape.index_head_dim if layer in shape.indexer_layers else 0)


def window(model: Model) -> int:
    """Tokens that a window keeps."""
    stated = model.config.get("sliding_window")
    return stated if isinstance(stated, int) else _WINDOW


def _overlap(ratio: int) -> int:
    return 2 if ratio == _OVERLAPS else 1
