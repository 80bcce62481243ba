"""Attention, then the MLP: where norms and residuals come in.

Local variables live as long as those of the modelling code they follow; that decides when a temporary goes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...tape.ops import add, scale

if TYPE_CHECKING:
    from ...tape.tensor import Tensor
    from ..layer import Layer


def pre(layer: Layer, x: Tensor) -> Tensor:
    """Llama."""
    residual = x
    h = layer.norm(x, 0)
    h = layer.attention(h)
    h = add(residual, layer.scaled(h))
    residual = h
    h = layer.norm(h, 2)
    h = layer.mlp(h)
    return add(residual, layer.scaled(h))


def pre_keeping(layer: Layer, x: Tensor) -> Tensor:
    """GPT-2: the attention's output has a name of its own to the end."""
    residual = x
    h = layer.norm(x, 0)
    branch = layer.attention(h)
    h = add(branch, residual)
    residual = h
    h = layer.norm(h, 2)
    h = layer.mlp(h)
    return add(residual, h)


def pre_stable(layer: Layer, x: Tensor) -> Tensor:
    """StableLM: the normed input keeps its name too."""
    residual = x
    h = layer.norm(x, 0)
    branch = layer.attention(h)
    residual = add(residual, branch)
    other = layer.norm(residual, 2)
    other = layer.mlp(other)
    return add(residual, other)


def pre_neox(layer: Layer, x: Tensor) -> Tensor:
    """GPT-NeoX without parallel residual."""
    branch = layer.norm(x, 0)
    branch = layer.attention(branch)
    branch = add(branch, x)
    other = layer.norm(branch, 2)
    other = layer.mlp(other)
    return add(other, branch)


def sandwich(layer: Layer, x: Tensor) -> Tensor:
    """Gemma 2: a norm on both sides of each branch."""
    residual = x
    h = layer.norm(x, 0)
    h = layer.attention(h)
    h = layer.norm(h, 1)
    h = add(residual, layer.scaled(h))
    residual = h
    h = layer.norm(h, 2)
    h = layer.mlp(h)
    h = layer.norm(h, 3)
    return add(residual, layer.scaled(h))


def post(layer: Layer, x: Tensor) -> Tensor:
    """OLMo 2: a norm behind each branch."""
    residual = x
    h = layer.attention(x)
    h = layer.norm(h, 1)
    h = add(residual, h)
    residual = h
    h = layer.mlp(h)
    h = layer.norm(h, 3)
    return add(residual, h)


def post_sum(layer: Layer, x: Tensor) -> Tensor:
    """OPT-350M: a norm behind each sum."""
    residual = x
    h = layer.attention(x)
    h = layer.norm(add(residual, h), 0)
    residual = h
    h = layer.mlp(h)
    return layer.norm(add(residual, h), 2)


def normed_residual(layer: Layer, x: Tensor) -> Tensor:
    """MiniMax: the residual is the normed input, and both are scaled."""
    x = layer.norm(x, 0)
    h = layer.attention(x)
    h = add(scale(x), scale(h))
    x = layer.norm(h, 2)
    del h
    h = layer.mlp(x)
    return add(scale(x), scale(h))


def griffin(layer: Layer, x: Tensor) -> Tensor:
    """RecurrentGemma: the normed input keeps its name to the end."""
    first = layer.norm(x, 0)
    h = layer.attention(first)
    residual = add(h, x)
    h = layer.norm(residual, 2)
    h = layer.mlp(h)
    h = add(h, residual)
    del first
    return h
