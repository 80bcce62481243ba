"""Zamba 2's hybrid layers: a transformer block that several layers share, whose output joins a state space's input.

The block reads the layer's input beside the embeddings, has no residual of its own, and goes through a projection; the
layers that share its weights add up one gradient of them. Low-rank pairs tell its uses apart.
Source: transformers 5.23 models/zamba2/modeling_zamba2.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...adapters.linear import project
from ...tape.indexing import cat, split
from ...tape.ops import add, mul
from ...tape.tape import tape_of
from ..activation import activation
from ..mixers.ssm import mamba2
from ..norms import normed
from ..shared_block import BLOCK, own_pair

if TYPE_CHECKING:
    from ...adapters.modules import Modules
    from ...tape.tensor import Tensor
    from ..dims import LayerDims
    from ..layer import Layer

PART = "shared block"


def zamba(layer: Layer, x: Tensor) -> Tensor:
    """x + mamba(norm(x + linear(block(x, embeddings)))).

    The state space's layer is a checkpoint of its own inside the layer's, which so keeps the block's output too. The
    probabilities of eager attention go with the block (`Zamba2AttentionDecoderLayer.forward`).
    """
    dims, modules = layer.dims, layer.modules
    assert layer.extra is not None
    h = cat((x, layer.extra))
    h = normed(h, modules.require(f"{BLOCK}.input_layernorm"), dims.rows, dims)
    h = layer.attention(h)
    h = normed(h, modules.require(f"{BLOCK}.pre_ff_layernorm"), dims.rows, dims)
    h = _feed_forward(h, modules, dims)
    tape_of(h).returned = None
    h = project(h, modules.require("linear"), dims.rows)
    tape_of(h).carry(h.storage)
    mixed = add(x, h)
    mixed = normed(mixed, modules.require("mamba_decoder.input_layernorm"), dims.rows, dims)
    mixed = mamba2(mixed, modules, dims)
    return add(x, mixed)


def _feed_forward(x: Tensor, modules: Modules, dims: LayerDims) -> Tensor:
    both = own_pair(project(x, modules.need("gate_up"), dims.rows), x, modules, "gate_up_proj", dims.rows)
    first, second = split(both, (both.n // 2, both.n // 2))
    del both
    product = mul(activation(dims.activation)(first), second)
    return project(product, modules.need("down"), dims.rows)
