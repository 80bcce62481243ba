"""Gemma 4: layers that read the keys and values of an earlier one, an input for every layer, experts beside the MLP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...adapters.linear import project
from ...estimate import NotEstimable
from ...tape.indexing import gather, topk
from ...tape.ops import add, gathered, leaf, mul, multiplied, scale, scattered
from ...tape.rows import divide, softmax
from ...tape.tape import tape_of
from ...tape.tensor import Tensor
from ..activation import activation
from ..attention.attention import head_norm
from ..attention.kernels import attend
from ..attention.rope import rotated
from ..experts import grouped
from ..layer_inputs import unreplaced_norm
from ..mlp import dense
from ..norms import NORMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...adapters.modules import Modules
    from ..dims import LayerDims
    from ..layer import Layer


def shared_attention(x: Tensor, layer: Layer) -> Tensor:
    """Queries are normed and rotated before keys are made; keys may serve as values; neither may be the layer's own.

    Liger replaces the norms of queries, keys and streams, not those without a weight, of the layer's own input or
    around its experts (liger_kernel 0.8.5 monkey_patch.py `apply_liger_kernel_to_gemma4_text`).
    """
    dims, modules, at = layer.dims, layer.modules, layer.heads
    plain = NORMS[dims.arch.norm]
    norm = head_norm(dims, dims.arch.norm)
    q = project(x, modules.need("q"), dims.rows)
    q = norm(q, modules.leaf("q_norm"), dims.rows * at.heads)
    q = rotated(q, layer.table)
    keys, values = modules.role("k"), modules.role("v")
    if keys is None:
        if layer.type not in layer.shared:
            raise NotEstimable("this pipeline stage reads keys and values of an earlier one, which is not derived")
        k, v = layer.shared[layer.type]
        at = at._replace(kv_heads=k.n // dims.rows // at.head_dim)
    else:
        k = project(x, keys, dims.rows)
        v = project(x, values, dims.rows) if values is not None else k
        k = norm(k, modules.leaf("k_norm"), dims.rows * at.kv_heads)
        k = rotated(k, layer.table)
        v = plain(v, None, dims.rows * at.kv_heads)
        _share(layer, k, v)
    k, v = tape_of(q).cached(k, v)
    y = attend(dims.attention.implementation, q, k, v, layer.mask, at)
    return project(y, modules.need("o"), dims.rows)


def shared_layer(layer: Layer, x: Tensor) -> Tensor:
    """Norms on both sides of attention and MLP, then the layer's own input, then a number in place.

    Under sequence parallelism attention and MLP gather the tokens of all ranks, as in other layers (`Layer.attention`).
    """
    dims, modules = layer.dims, layer.modules
    if dims.sequence_shards > 1 and (layer.extra is not None or modules.role("expert_gate_up") is not None):
        raise NotEstimable("what sequence parallelism makes of this model's layers is not derived")
    residual = x
    h = layer.norm(x, 0)
    h = _over_all_tokens(lambda whole: shared_attention(whole, layer), h, dims)
    h = layer.norm(h, 1)
    h = add(residual, h)
    residual = h
    h = layer.norm(h, 2)
    h = _over_all_tokens(lambda whole: dense(whole, modules, dims, ""), h, dims)
    if modules.role("expert_gate_up") is not None:
        h = _with_experts(h, residual, modules, dims)
    h = layer.norm(h, 3)
    h = add(residual, h)
    if layer.extra is not None:
        residual = h
        h = project(h, modules.named["per_layer_input_gate"], dims.rows)
        h = activation(dims.activation)(h)
        h = mul(h, layer.extra)
        h = project(h, modules.named["per_layer_projection"], dims.rows)
        h = unreplaced_norm(h, modules.leaf("post_per_layer_input_norm"), dims.rows, dims)
        h = add(residual, h)
    return multiplied(h)


def _over_all_tokens(part: Callable[[Tensor], Tensor], h: Tensor, dims: LayerDims) -> Tensor:
    return part(h) if dims.sequence_shards == 1 else scattered(part(gathered(h, h.n * dims.sequence_shards)), h.n)


def _with_experts(h: Tensor, residual: Tensor, modules: Modules, dims: LayerDims) -> Tensor:
    first = unreplaced_norm(h, modules.leaf("post_feedforward_layernorm_1"), dims.rows, dims)
    weights, chosen = _route(residual, modules, dims)
    second = unreplaced_norm(residual, modules.leaf("pre_feedforward_layernorm_2"), dims.rows, dims)
    second = grouped(second, weights, chosen, modules, dims)
    second = unreplaced_norm(second, modules.leaf("post_feedforward_layernorm_2"), dims.rows, dims)
    return add(first, second)


def _route(x: Tensor, modules: Modules, dims: LayerDims) -> tuple[Tensor, Tensor]:
    """A norm without weight, a trained scale for every feature and, in the end, for every expert."""
    tape = tape_of(x)
    factors, expert_factors = modules.require("router.scale"), modules.require("router.per_expert_scale")
    h = NORMS[dims.arch.norm](x, None, dims.rows)
    h = scale(mul(h, factors.weight))
    logits = project(h, modules.need("router"), dims.rows)
    values, chosen = topk(softmax(logits, 4), dims.rows * dims.experts.top_k)
    values = divide(values, dims.rows)
    return mul(values, gather(leaf(tape, expert_factors.weight), values.n, chosen)), chosen


def _share(layer: Layer, k: Tensor, v: Tensor) -> None:
    """Keep keys and values for later layers of the same type; of a checkpointed layer, without their graph."""
    tape = tape_of(k)
    if tape.again or layer.number not in layer.dims.shared_keys:
        return
    if not tape.recording:
        k, v = Tensor(k.storage, k.n, k.e), Tensor(v.storage, v.n, v.e)
    layer.shared[layer.type] = k, v
