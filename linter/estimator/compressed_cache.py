"""The caches of DeepSeek V4's layers: a window of keys, and what compressors make of the tokens behind it.

D head dim, I indexer's key, r tokens that one entry stands for, c 2 where neighbouring entries overlap (r = 4), else 1.

    each token      (D + I) / r elements, I only with r = 4; nothing in a layer without a compressor
    each sequence   a window of D elements a token, and c r tokens of the compressor's state, 2 c (D + I) each, float32

In vLLM's fp8 layout D takes 584 B (448 fp8, 64 of 16 bits, 8 scales) and I its fp8 with a scale of 4 B. All of it is
whole on every tensor-parallel rank. How pages of the kinds share blocks is not derived, only their bytes.
Source: vllm 0.28 models/deepseek_v4/attention.py, compressor.py; transformers 5.23 models/deepseek_v4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..models.model import Model, Shape

RATIOS = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
"""Tokens of one entry, by the kind of layer."""

_OVERLAPS = 4
_WINDOW = 128
"""transformers' DeepseekV4Config.sliding_window"""
_FP8_ENTRY = 584
_SCALE = 4
_STATE = 4


def compresses(shape: Shape) -> bool:
    """Whether the model has such layers."""
    return any(kind in RATIOS for kind in shape.layer_types)


def elements(model: Model, layer: int) -> tuple[int, int]:
    """Elements for each token, and for each sequence, of one layer."""
    shape = model.shape
    ratio, width = RATIOS.get(shape.layer_types[layer], 0), _width(shape, layer)
    return (width // ratio if ratio else 0), _window(model) * shape.head_dim + _state(shape, layer)


def stored(model: Model, layer: int, element: float) -> tuple[float, float]:
    """The bytes of both in vLLM, for a cache of `element` bytes."""
    shape = model.shape
    ratio = RATIOS.get(shape.layer_types[layer], 0)
    entry = float(_FP8_ENTRY) if element == 1 and shape.head_dim == 512 else shape.head_dim * element
    index = _width(shape, layer) - shape.head_dim
    token = (entry + (index + _SCALE if index else 0)) / ratio if ratio else 0.0
    return token, _window(model) * entry + _STATE * _state(shape, layer)


def _width(shape: Shape, layer: int) -> int:
    return shape.head_dim + (shape.index_head_dim if layer in shape.indexer_layers else 0)


def _window(model: Model) -> int:
    stated = model.config.get("sliding_window")
    return stated if isinstance(stated, int) else _WINDOW


def _state(shape: Shape, layer: int) -> int:
    ratio = RATIOS.get(shape.layer_types[layer], 0)
    overlap = 2 if ratio == _OVERLAPS else 1
    return overlap * ratio * 2 * overlap * _width(shape, layer)
