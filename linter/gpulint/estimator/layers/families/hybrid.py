"""Layers that mix attention with state spaces or linear attention: Falcon-H1, OLMo Hybrid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...tape.ops import add, scale
from ..mixers.mixer import mixer
from . import sequential

if TYPE_CHECKING:
    from ...tape.tensor import Tensor
    from ..layer import Layer


def beside(layer: Layer, x: Tensor) -> Tensor:
    """Falcon-H1: a state space and attention of the same normed input, each scaled, then the MLP."""
    residual = x
    h = layer.norm(x, 0)
    first = scale(mixer(h, layer.modules, layer.dims))
    second = scale(layer.attention(scale(h)))
    h = add(first, second)
    h = add(residual, h)
    residual = h
    h = layer.norm(h, 2)
    h = layer.mlp(h)
    return add(residual, h)


def mixed(layer: Layer, x: Tensor) -> Tensor:
    """OLMo Hybrid: norms before the branches of linear attention, behind those of attention."""
    return sequential.pre(layer, x) if layer.recurrent else sequential.post(layer, x)
