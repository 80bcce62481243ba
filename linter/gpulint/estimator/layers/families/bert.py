"""BERT's line: a norm behind each sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...adapters.linear import project
from ...tape.ops import add, dropout
from ..activation import activation
from ..experts import feed_forward

if TYPE_CHECKING:
    from ...tape.tensor import Tensor
    from ..layer import Layer

PART = "layers and embeddings"


def bert(layer: Layer, x: Tensor) -> Tensor:
    """BERT: what the MLP's activation makes has a name to the end of the layer."""
    dims, modules = layer.dims, layer.modules
    h = layer.attention(x)
    h = layer.norm(add(h, x), 0)
    inner = activation(dims.activation)(project(h, modules.need("up"), dims.rows))
    y = project(inner, modules.need("down"), dims.rows)
    y = dropout(y, dims.dropout.residual)
    return layer.norm(add(y, h), 2)


def distilbert(layer: Layer, x: Tensor) -> Tensor:
    """DistilBERT: dropout behind the MLP only."""
    h = layer.plain_attention(x)
    h = layer.norm(add(h, x), 0)
    y = layer.mlp(h)
    return layer.norm(add(y, h), 2)


def albert(layer: Layer, x: Tensor) -> Tensor:
    """ALBERT: dropout behind attention only."""
    h = layer.attention(x)
    h = layer.norm(add(x, h), 0)
    y = feed_forward(h, layer.modules, layer.dims)
    return layer.norm(add(y, h), 2)
