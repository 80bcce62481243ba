"""Attention and the MLP beside each other, of the same residual."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...tape.ops import add, add_to, dropout
from ..experts import feed_forward

if TYPE_CHECKING:
    from ...tape.tensor import Tensor
    from ..layer import Layer


def parallel(layer: Layer, x: Tensor) -> Tensor:
    """Phi, GPT-J: attention and MLP of the same normed input, then the residual."""
    residual = x
    h = layer.norm(x, 0)
    branch = layer.attention(h)
    other = layer.mlp(h)
    return add(add(branch, other), residual)


def parallel_residual(layer: Layer, x: Tensor) -> Tensor:
    """Cohere, StableLM 2 12B: the residual joins the attention first."""
    residual = x
    h = layer.norm(x, 0)
    branch = layer.attention(h)
    other = layer.mlp(h)
    return add(add(residual, branch), other)


def parallel_norms(layer: Layer, x: Tensor) -> Tensor:
    """GPT-NeoX: each branch has its own norm of the input."""
    branch = layer.norm(x, 0)
    branch = layer.attention(branch)
    other = layer.norm(x, 2)
    other = layer.mlp(other)
    return add(add(other, branch), x)


def falcon(layer: Layer, x: Tensor) -> Tensor:
    """Falcon: one or two norms of the input, the MLP's output takes the attention's in place."""
    residual = x
    first = layer.norm(x, 0)
    second = layer.norm(x, 2) if layer.modules.leaf("ln_mlp") is not None else first
    branch = layer.attention(first)
    other = feed_forward(second, layer.modules, layer.dims)
    other = add_to(other, branch)
    return add(residual, dropout(other, layer.dims.dropout.residual))


def falcon_serial(layer: Layer, x: Tensor) -> Tensor:
    """Falcon-RW: attention, then the MLP."""
    first = layer.norm(x, 0)
    branch = layer.attention(first)
    residual = add(x, branch)
    second = layer.norm(residual, 2)
    other = feed_forward(second, layer.modules, layer.dims)
    return add(residual, dropout(other, layer.dims.dropout.residual))
