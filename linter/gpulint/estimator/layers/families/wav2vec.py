"""Wav2Vec2 and HuBERT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...adapters.linear import project
from ...tape.ops import add, dropout
from ..activation import activation

if TYPE_CHECKING:
    from ...tape.tensor import Tensor
    from ..layer import Layer


def speech(layer: Layer, x: Tensor) -> Tensor:
    """A layer with norms behind its sums."""
    residual = x
    h = add(residual, layer.attention(x))
    h = layer.norm(h, 0)
    h = add(h, _fed(layer, h))
    return layer.norm(h, 2)


def speech_before(layer: Layer, x: Tensor) -> Tensor:
    """A layer with norms before its branches (`do_stable_layer_norm`)."""
    residual = x
    h = layer.norm(x, 0)
    h = layer.attention(h)
    h = add(residual, h)
    return add(h, _fed(layer, layer.norm(h, 2)))


def _fed(layer: Layer, x: Tensor) -> Tensor:
    dims, modules = layer.dims, layer.modules
    h = project(x, modules.need("up"), dims.rows)
    h = activation(dims.activation)(h)
    h = dropout(h, dims.dropout.activation)
    h = project(h, modules.need("down"), dims.rows)
    return dropout(h, dims.dropout.residual)
