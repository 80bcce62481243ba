"""Gemma 4: layers that read the keys and values of an earlier one, inputs for every layer, experts beside the MLP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..adapters.linear import project
from ..estimate import NotEstimable
from ..tape.indexing import embedding, gather, topk, window
from ..tape.ops import add, divide, gathered, leaf, mul, multiplied, scale, scattered, softmax
from ..tape.tensor import Tensor
from .activation import activation
from .attention.attention import head_norm
from .attention.kernels import attend
from .attention.rope import turned
from .experts import grouped
from .mlp import dense
from .norms import NORMS, normed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..adapters.modules import Linear, Modules
    from ..tape.tape import Tape
    from .decoder import Layer
    from .setting import Setting


def layer_tokens(tape: Tape, ids: Tensor, outside: Modules, s: Setting) -> Tensor | None:
    """The second embedding, of all layers in one tensor; it is made before images take their places in the first."""
    table, projection = outside.leaf("embed_tokens_per_layer"), outside.leaf("per_layer_model_projection")
    if table is None or projection is None:
        return None
    return scale(embedding(tape, s.rows, table.weight, projection.out, ids))


def layer_inputs(embeds: Tensor, tokens: Tensor, outside: Modules, s: Setting) -> Tensor:
    """Inputs of all layers in one tensor: the second embedding plus a projection of the first."""
    projection = outside.require("per_layer_model_projection")
    width = projection.out
    projected = scale(project(embeds, projection, s.rows))
    norm = outside.leaf("per_layer_projection_norm")
    assert norm is not None
    projected = _stock(projected, norm, s.rows * width // norm.weight.n, s)
    return scale(add(projected, tokens))


def shared_attention(x: Tensor, layer: Layer) -> Tensor:
    """Queries are normed and turned before keys are made; keys may serve as values; neither may be the layer's own.

    Liger replaces the norms of queries, keys and streams, not those without a weight, of the layer's own input or
    around its experts (liger_kernel 0.8.5 monkey_patch.py `apply_liger_kernel_to_gemma4_text`).
    """
    s, modules, at = layer.s, layer.modules, layer.at
    plain = NORMS[s.traits.norm]
    norm = head_norm(s, s.traits.norm)
    q = project(x, modules.need("q"), s.rows)
    q = norm(q, modules.leaf("q_norm"), s.rows * at.heads)
    q = turned(q, layer.table)
    keys, values = modules.role("k"), modules.role("v")
    if keys is None:
        if layer.type not in layer.shared:
            raise NotEstimable("this pipeline stage reads keys and values of an earlier one, which is not derived")
        k, v = layer.shared[layer.type]
        at = at._replace(kv_heads=k.n // s.rows // at.head_dim)
    else:
        k = project(x, keys, s.rows)
        v = project(x, values, s.rows) if values is not None else k
        k = norm(k, modules.leaf("k_norm"), s.rows * at.kv_heads)
        k = turned(k, layer.table)
        v = plain(v, None, s.rows * at.kv_heads)
        share(layer, k, v)
    k, v = q.storage.tape.cached(k, v)
    y = attend(s.attention, q, k, v, layer.mask, at)
    return project(y, modules.need("o"), s.rows)


def _stock(x: Tensor, module: Linear | None, rows: int, s: Setting) -> Tensor:
    """A norm that Liger leaves as it is."""
    return NORMS[s.traits.norm](x, module, rows) if s.fused else normed(x, module, rows, s)


def shared_layer(layer: Layer, x: Tensor) -> Tensor:
    """Norms on both sides of attention and MLP, then the layer's own input, then a number in place.

    Under sequence parallelism attention and MLP gather the tokens of all ranks, as in other layers (`decoder.py`).
    """
    s, modules = layer.s, layer.modules
    if s.shards > 1 and (layer.extra is not None or modules.role("expert_gate_up") is not None):
        raise NotEstimable("what sequence parallelism makes of this model's layers is not derived")
    residual = x
    h = layer.norm(x, 0)
    h = _over_all_tokens(lambda whole: shared_attention(whole, layer), h, s)
    h = layer.norm(h, 1)
    h = add(residual, h)
    residual = h
    h = layer.norm(h, 2)
    h = _over_all_tokens(lambda whole: dense(whole, modules, s, ""), h, s)
    if modules.role("expert_gate_up") is not None:
        h = _with_experts(h, residual, modules, s)
    h = layer.norm(h, 3)
    h = add(residual, h)
    if layer.extra is not None:
        residual = h
        h = project(h, modules.named["per_layer_input_gate"], s.rows)
        h = activation(s.activation)(h)
        h = mul(h, layer.extra)
        h = project(h, modules.named["per_layer_projection"], s.rows)
        h = _stock(h, modules.leaf("post_per_layer_input_norm"), s.rows, s)
        h = add(residual, h)
    return multiplied(h)


def _over_all_tokens(part: Callable[[Tensor], Tensor], h: Tensor, s: Setting) -> Tensor:
    return part(h) if s.shards == 1 else scattered(part(gathered(h, h.n * s.shards)), h.n)


def _with_experts(h: Tensor, residual: Tensor, modules: Modules, s: Setting) -> Tensor:
    first = _stock(h, modules.leaf("post_feedforward_layernorm_1"), s.rows, s)
    weights, chosen = _route(residual, modules, s)
    second = _stock(residual, modules.leaf("pre_feedforward_layernorm_2"), s.rows, s)
    second = grouped(second, weights, chosen, modules, s)
    second = _stock(second, modules.leaf("post_feedforward_layernorm_2"), s.rows, s)
    return add(first, second)


def _route(x: Tensor, modules: Modules, s: Setting) -> tuple[Tensor, Tensor]:
    """A norm without weight, a trained scale for every feature and, in the end, for every expert."""
    tape = x.storage.tape
    factors, expert_factors = modules.leaf("router.scale"), modules.leaf("router.per_expert_scale")
    assert factors is not None
    assert expert_factors is not None
    h = NORMS[s.traits.norm](x, None, s.rows)
    h = scale(mul(h, factors.weight))
    logits = project(h, modules.need("router"), s.rows)
    values, chosen = topk(softmax(logits, 4), s.rows * s.top_k)
    values = divide(values, s.rows)
    return mul(values, gather(leaf(tape, expert_factors.weight), values.n, chosen)), chosen


def share(layer: Layer, k: Tensor, v: Tensor) -> None:
    """Keep keys and values for later layers of the same type; of a checkpointed layer, without their graph."""
    tape = k.storage.tape
    if tape.again or not layer.stores:
        return
    if not tape.recording:
        k, v = Tensor(k.storage, k.n, k.e), Tensor(v.storage, v.n, v.e)
    layer.shared[layer.type] = k, v


def slice_of(extra: Tensor | None, s: Setting) -> Tensor | None:
    """One layer's share of the inputs for all layers; Zamba's is the same for each."""
    return extra if extra is None or s.order == "zamba" else window(extra, extra.n // s.total_layers)
