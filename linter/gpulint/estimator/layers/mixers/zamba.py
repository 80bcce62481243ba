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
from ..activation import activation
from ..norms import normed
from .ssm import mamba2

if TYPE_CHECKING:
    from ...adapters.modules import Modules
    from ...tape.tensor import Tensor
    from ..decoder import Layer
    from ..setting import Setting

PART = "shared block"

BLOCK = "shared_transformer"


def hybrid_layer(layer: Layer, x: Tensor) -> Tensor:
    """x + mamba(norm(x + linear(block(x, embeddings)))).

    The state space's layer is a checkpoint of its own inside the layer's, which so keeps the block's output too. The
    probabilities of eager attention go with the block (`Zamba2AttentionDecoderLayer.forward`).
    """
    s, modules = layer.s, layer.modules
    assert layer.extra is not None
    h = cat((x, layer.extra))
    h = normed(h, modules.require(f"{BLOCK}.input_layernorm"), s.rows, s)
    h = layer.attention(h)
    h = normed(h, modules.require(f"{BLOCK}.pre_ff_layernorm"), s.rows, s)
    h = _feed_forward(h, modules, s)
    h.storage.tape.returned = None
    h = project(h, modules.require("linear"), s.rows)
    h.storage.tape.carry(h.storage)
    mixed = add(x, h)
    mixed = normed(mixed, modules.require("mamba_decoder.input_layernorm"), s.rows, s)
    mixed = mamba2(mixed, modules, s)
    return add(x, mixed)


def _feed_forward(x: Tensor, modules: Modules, s: Setting) -> Tensor:
    both = own_pair(project(x, modules.need("gate_up"), s.rows), x, modules, "gate_up_proj", s.rows)
    first, second = split(both, (both.n // 2, both.n // 2))
    del both
    product = mul(activation(s.activation)(first), second)
    return project(product, modules.need("down"), s.rows)


def own_pair(y: Tensor, x: Tensor, modules: Modules, name: str, rows: int) -> Tensor:
    """y and what the layer's own low-rank pair makes of x; y itself where there is none."""
    first, second = modules.leaf(f"{name}_adapter_list.0"), modules.leaf(f"{name}_adapter_list.1")
    if first is None or second is None:
        return y
    return add(y, project(project(x, first, rows), second, rows))
