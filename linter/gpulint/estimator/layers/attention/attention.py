"""Self-attention layers: projections, norms of queries and keys, rotary embedding, kernel, output projection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...adapters import fused_lora
from ...adapters.linear import project
from ...tape.indexing import cat, repeat, select, split, window
from ...tape.ops import clamped, contiguous, leaf, mul, relayout, scale, to, unary
from ...tape.tape import tape_of
from ...tape.tensor import Parameter, Tensor
from .. import compiled, liger
from ..norms import NORMS, inner_norm
from ..shared_block import own_pair
from .kernels import attend
from .rope import NAMED, ROPES

if TYPE_CHECKING:
    from ...adapters.modules import Linear, Modules
    from ..dims import LayerDims
    from ..norms import Norm
    from ..state import ReplayState
    from .heads import AttentionInputs, Heads
    from .rope import Table

PART = "attention"


def attention(x: Tensor, modules: Modules, dims: LayerDims, state: ReplayState, inputs: AttentionInputs) -> Tensor:
    """softmax(q k') v and its output projection."""
    if dims.arch.output_gate == "query":
        return _gated(x, modules, dims, inputs)
    at, rows = inputs.heads, dims.rows
    fused = modules.role("qkv")
    whole = project(x, fused, rows) if fused else None
    if whole is not None and dims.attention.caches_keys and not tape_of(x).again:
        state.held_by_forward.append(whole.storage)
        state.cached_keys = whole.storage.size
        state.widened_keys = 4 * (whole.n - rows * at.heads * at.head_dim) if whole.e < 4 else 0
    q, k, v = _separate(x, modules, dims, at) if whole is None else _fused(whole, modules, dims, at)
    gate = project(x, modules.named["self_attn.gate_proj"], rows) if dims.arch.output_gate == "projection" else None
    q, k, parts = _rotated(q, k, inputs.table, dims, inputs.rope_type)
    if dims.arch.norm_at == "rope" and inputs.rope_type == "none" and dims.arch.nope_layers == "list":
        q = to(scale(to(q, 4)), q.e)
    elif dims.arch.norm_at == "rope":
        norm = head_norm(dims)
        first, second = head_norms(modules)
        q = norm(q, first, rows * at.heads)
        k = norm(k, second, rows * at.kv_heads)
    k, v = tape_of(q).cached(k, v)
    if dims.keys > dims.length:
        k, v = _behind_prefix(k, v, dims, state)
        at = at._replace(keys=dims.keys)
    y = _attended(q, k, v, dims, inputs.mask, at)
    if gate is not None:
        y = mul(y, unary(gate, save_input=False, save_output=True))
    if dims.arch.output_gate == "heads" and modules.leaf("g_proj") is not None:
        y = mul(y, unary(project(x, modules.require("g_proj"), rows), save_input=False, save_output=True))
    if dims.arch.output_gate == "softplus":
        y = mul(y, to(unary(to(project(x, modules.require("g_proj"), rows), 4)), y.e))
    y = inner_norm(y, modules, "attn_sub_norm", dims)
    y = _output(y, modules.need("o"), rows)
    del whole, parts
    return y


def _behind_prefix(k: Tensor, v: Tensor, dims: LayerDims, state: ReplayState) -> tuple[Tensor, Tensor]:
    """A layer's keys and values behind its part of a learned prefix.

    `torch.cat` of the cache makes both anew (transformers cache_utils.py `DynamicLayer.update`), and the cache holds
    them until the forward function ends (peft 0.21.2 peft_model.py `get_prompt`).
    """
    tape, tokens = tape_of(k), dims.keys - dims.length
    found = []
    for x in (k, v):
        each = x.n // dims.length * tokens
        part = Parameter(each, k.e, True)
        part.summed = True
        whole = cat((leaf(tape, part), x))
        whole.heads_first = True
        if not tape.again:
            state.held_by_forward.append(whole.storage)
        found.append(whole)
    return found[0], found[1]


def _attended(q: Tensor, k: Tensor, v: Tensor, dims: LayerDims, mask: Tensor | None, at: Heads) -> Tensor:
    """The kernel's output; Megatron's selective recomputation keeps queries, keys and values and calls it again."""
    implementation = dims.attention.implementation
    if not dims.attention.recomputes_core:
        return attend(implementation, q, k, v, mask, at)
    tape = tape_of(q)

    def inside(queries: Tensor) -> Tensor:
        y = attend(implementation, queries, k, v, mask, at)
        tape.returned = None
        return y

    return tape.checkpoint(inside, q, "full", reentrant=True, others=(k, v))


def _rotated(
    q: Tensor, k: Tensor, table: Table, dims: LayerDims, rope_type: str
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Queries and keys with their rotary embedding, and the parts of them that the layer has names for."""
    if rope_type == "none":
        return q, k, ()
    if "rope" in dims.fused:
        return *liger.rope(q, k, table, dims.arch.qkv == "slices"), ()
    if dims.compiled:
        return *compiled.rope(q, k, table), ()
    if rope_type in NAMED:
        return NAMED[rope_type](q, k, table)
    return *ROPES[rope_type](q, k, table), ()


def _output(y: Tensor, layer: Linear, rows: int) -> Tensor:
    return fused_lora.projections(y, [layer], rows)[0] if fused_lora.fits("o", layer) else project(y, layer, rows)


def _gated(x: Tensor, modules: Modules, dims: LayerDims, inputs: AttentionInputs) -> Tensor:
    """Qwen3-Next's: the second half of the query projection, through a sigmoid, multiplies the output."""
    at, rows = inputs.heads, dims.rows
    norm, (first, second) = head_norm(dims), head_norms(modules)
    size = rows * at.heads * at.head_dim
    q, gate = split(project(x, modules.need("q"), rows), (size, size))
    gate = contiguous(gate)
    q = norm(q, first, rows * at.heads)
    k = norm(relayout(project(x, modules.need("k"), rows)), second, rows * at.kv_heads)
    v = project(x, modules.need("v"), rows)
    q, k = ROPES[inputs.rope_type](q, k, inputs.table)
    k, v = tape_of(q).cached(k, v)
    y = _attended(q, k, v, dims, inputs.mask, at)
    y = mul(y, unary(gate, save_input=False, save_output=True))
    return project(y, modules.need("o"), rows)


def head_norm(dims: LayerDims, kind: str = "") -> Norm:
    """The norm of queries and keys, of their own `kind` where that is no trait, or Liger's in its place."""
    found = NORMS[kind or dims.arch.head_norm]
    if "head_norm" not in dims.fused:
        return found
    in_place = "norm" in dims.fused
    return lambda x, module, rows: liger.norm(x, module, rows, in_place)


def _separate(x: Tensor, modules: Modules, dims: LayerDims, at: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """One projection each. A norm over whole rows comes before the next projection, one over heads after all."""
    arch = dims.arch
    first, second = head_norms(modules) if arch.head_norm else (None, None)
    norm = head_norm(dims) if first is not None else None
    if norm is not None and arch.norm_at in ("whole", "first"):
        return _normed(x, modules, dims, at, norm)
    q, k, v = _projected(x, modules, dims, at)
    if arch.value_scale:
        v = scale(v)
    if arch.own_pairs:
        q, k, v = (own_pair(y, x, modules, f"linear_{name}", dims.rows) for y, name in ((q, "q"), (k, "k"), (v, "v")))
    if arch.rope != "partial_gptj" and "rope" not in dims.fused:
        q, k = relayout(q), relayout(k)
    if norm is not None and arch.norm_at == "heads":
        q = norm(q, first, dims.rows * at.heads)
        k = norm(k, second, dims.rows * at.kv_heads) if second is not None else k
    return _clipped(q, k, v, dims)


def _clipped(q: Tensor, k: Tensor, v: Tensor, dims: LayerDims) -> tuple[Tensor, Tensor, Tensor]:
    """OLMo's and OLMoE's `clip_qkv`."""
    return (clamped(q), clamped(k), clamped(v)) if dims.attention.clips else (q, k, v)


def _projected(x: Tensor, modules: Modules, dims: LayerDims, at: Heads) -> tuple[Tensor, Tensor, Tensor]:
    queries, keys, values = (modules.role(role) for role in ("q", "k", "v"))
    assert queries is not None
    if fused_lora.fits("qkv", queries, keys, values) and keys is not None and values is not None:
        q, k, v = fused_lora.projections(x, [queries, keys, values], dims.rows)
        return q, k, v
    q = project(x, queries, dims.rows)
    if dims.arch.query_scale:
        q = scale(q)
    k = project(x, keys, dims.rows) if keys is not None else _shared(x, dims.rows * at.kv_heads * at.head_dim)
    return q, k, project(x, values, dims.rows) if values is not None else k


def _shared(x: Tensor, n: int) -> Tensor:
    """Keys or values of another layer, counted there."""
    return Tensor(tape_of(x).nothing, n, x.e)


def _normed(x: Tensor, modules: Modules, dims: LayerDims, at: Heads, norm: Norm) -> tuple[Tensor, Tensor, Tensor]:
    first, second = head_norms(modules)
    if dims.arch.norm_at == "whole":
        q = relayout(norm(project(x, modules.need("q"), dims.rows), first, dims.rows))
        k = relayout(norm(project(x, modules.need("k"), dims.rows), second, dims.rows))
    else:
        q = norm(relayout(project(x, modules.need("q"), dims.rows)), first, dims.rows * at.heads)
        k = norm(relayout(project(x, modules.need("k"), dims.rows)), second, dims.rows * at.kv_heads)
    return _clipped(q, k, project(x, modules.need("v"), dims.rows), dims)


def _fused(qkv: Tensor, modules: Modules, dims: LayerDims, at: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values taken out of one projection."""
    q_size = dims.rows * at.heads * at.head_dim
    k_size = dims.rows * at.kv_heads * at.head_dim
    v_size = dims.rows * at.kv_heads * at.value_dim
    kind = dims.arch.qkv
    if kind == "split":
        q, k, v = split(qkv, (q_size, k_size, v_size))
    elif kind == "chunk":
        q, k, v = split(relayout(qkv), (q_size, k_size, v_size))
    elif kind == "multi_query":
        q, k, v = window(qkv, q_size), select(qkv, k_size), select(qkv, v_size)
    elif kind == "grouped":
        size = dims.rows * dims.attention.groups * at.head_dim
        q, k, v = window(qkv, q_size), select(qkv, size), select(qkv, size)
        q, k, v = repeat(q, q_size), repeat(k, q_size), repeat(v, q_size)
    else:
        q, k, v = window(qkv, q_size), window(qkv, k_size), window(qkv, v_size)
        if kind == "slices":
            q, k = relayout(q), relayout(k)
    first, second = head_norms(modules) if dims.arch.head_norm else (None, None)
    if first is not None and dims.arch.norm_at == "heads":
        norm = head_norm(dims)
        q = norm(q, first, dims.rows * at.heads)
        k = norm(k, second, dims.rows * at.kv_heads) if second is not None else k
    return q, k, v


Q_NORMS = ("q_norm", "q_layernorm", "query_layernorm", "q_layernorm.norms", "qk_norm")
K_NORMS = ("k_norm", "k_layernorm", "key_layernorm", "k_layernorm.norms", "qk_norm")


def head_norms(modules: Modules) -> tuple[Linear | None, Linear | None]:
    """The modules that norm queries and keys, where there are any."""
    q = next((found for name in Q_NORMS if (found := modules.leaf(name)) is not None), None)
    k = next((found for name in K_NORMS if (found := modules.leaf(name)) is not None), None)
    return q, k
