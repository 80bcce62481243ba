"""Mllama: layers that attend to images among Llama's.

Source: transformers 5.23 models/mllama/modeling_mllama.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...adapters.linear import project
from ...tape.labels import labelled
from ...tape.ops import add, mul, relayout
from ...tape.tape import tape_of
from ..activation import tanh_gated
from ..attention.attention import head_norm, head_norms
from ..attention.kernels import attend
from . import sequential

if TYPE_CHECKING:
    from ...tape.tensor import Tensor
    from ..layer import Layer
    from ..layer_inputs import EncoderStates


def crossing(layer: Layer, x: Tensor) -> Tensor:
    """Mllama: layers that attend to images among Llama's."""
    if layer.encoder_states is None:
        return sequential.pre(layer, x)
    return attends_to_images(layer, x)


@labelled(part="residual stream")
def attends_to_images(layer: Layer, x: Tensor) -> Tensor:
    """A layer that attends to images: both branches times a gate's tanh, the MLP's also zero where nothing is seen."""
    states, modules = layer.encoder_states, layer.modules
    assert states is not None
    residual = x
    h = layer.norm(x, 0)
    h = cross_attention(layer, h, states)
    h = add(residual, tanh_gated(h, modules.require("cross_attn_attn_gate")))
    residual = h
    h = layer.norm(h, 2)
    h = layer.mlp(h)
    h = mul(states.seeing, h)
    return add(residual, tanh_gated(h, modules.require("cross_attn_mlp_gate")))


@labelled(part="attention to images")
def cross_attention(layer: Layer, x: Tensor, states: EncoderStates) -> Tensor:
    """Queries of the tokens, keys and values of the images, each of both normed behind its projection."""
    dims, modules, at = layer.dims, layer.modules, layer.heads
    norm, (first, second) = head_norm(dims), head_norms(modules)
    q = norm(relayout(project(x, modules.need("q"), dims.rows)), first, dims.rows * at.heads)
    k = relayout(project(states.states, modules.need("k"), states.rows))
    v = project(states.states, modules.need("v"), states.rows)
    k = norm(k, second, states.rows * at.kv_heads)
    k, v = tape_of(q).cached(k, v)
    y = attend(dims.attention.implementation, q, k, v, states.mask, at._replace(keys=states.rows // dims.batch))
    return project(y, modules.need("o"), dims.rows)
