"""Self-attention layers: projections, norms of queries and keys, rotary embedding, kernel, output projection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...adapters import fused_lora
from ...adapters.linear import project
from ...adapters.virtual_tokens import behind
from ...frameworks.attention import remakes_scores
from ...tape.indexing import repeat, select, split, window
from ...tape.ops import clamped, contiguous, mul, relayout, scale, to, unary
from ...tape.tensor import Tensor
from .. import compiled, liger
from ..mixers.zamba import own_pair
from ..norms import NORMS, inner_norm
from .kernels import attend
from .rope import NAMED, ROPES

if TYPE_CHECKING:
    from ...adapters.modules import Linear, Modules
    from ..norms import Norm
    from ..setting import Setting
    from .kernels import Heads
    from .rope import Table

PART = "attention"


def attention(
    x: Tensor, modules: Modules, s: Setting, table: Table, mask: Tensor | None, at: Heads, turn: str
) -> Tensor:
    """softmax(q k') v and its output projection; `turn` names the rotary embedding of this layer."""
    if s.traits.output_gate == "query":
        return _gated(x, modules, s, table, mask, at, turn)
    fused = modules.role("qkv")
    whole = project(x, fused, s.rows) if fused else None
    if whole is not None and s.release.caches and not x.storage.tape.again:
        s.cache.append(whole.storage)
        s.cached_keys = whole.storage.size
        s.widened_keys = 4 * (whole.n - s.rows * at.heads * at.head_dim) if whole.e < 4 else 0
    q, k, v = _separate(x, modules, s, at) if whole is None else _fused(whole, modules, s, at)
    gate = project(x, modules.named["self_attn.gate_proj"], s.rows) if s.traits.output_gate == "projection" else None
    q, k, parts = _turned(q, k, table, s, turn)
    if s.traits.norm_at == "rope" and turn == "none" and s.traits.unturned == "list":
        q = to(scale(to(q, 4)), q.e)
    elif s.traits.norm_at == "rope":
        norm = head_norm(s)
        first, second = head_norms(modules)
        q = norm(q, first, s.rows * at.heads)
        k = norm(k, second, s.rows * at.kv_heads)
    k, v = q.storage.tape.cached(k, v)
    if s.keys > s.length:
        k, v = behind(k, v, s)
        at = at._replace(keys=s.keys)
    y = _attended(q, k, v, s, mask, at)
    if gate is not None:
        y = mul(y, unary(gate, save_input=False, save_output=True))
    if s.traits.output_gate == "heads" and modules.leaf("g_proj") is not None:
        y = mul(y, unary(project(x, modules.require("g_proj"), s.rows), save_input=False, save_output=True))
    if s.traits.output_gate == "softplus":
        y = mul(y, to(unary(to(project(x, modules.require("g_proj"), s.rows), 4)), y.e))
    y = inner_norm(y, modules, "attn_sub_norm", s)
    y = _output(y, modules.need("o"), s)
    del whole, parts
    return y


def _attended(q: Tensor, k: Tensor, v: Tensor, s: Setting, mask: Tensor | None, at: Heads) -> Tensor:
    """The kernel's output; Megatron's selective recomputation keeps queries, keys and values and calls it again."""
    if not remakes_scores(s.job, s.attention):
        return attend(s.attention, q, k, v, mask, at)
    tape = q.storage.tape

    def inside(queries: Tensor) -> Tensor:
        y = attend(s.attention, queries, k, v, mask, at)
        tape.returned = None
        return y

    return tape.checkpoint(inside, q, "full", reentrant=True, others=(k, v))


def _turned(q: Tensor, k: Tensor, table: Table, s: Setting, turn: str) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Queries and keys with their rotary embedding, and the parts of them that the layer has names for."""
    if turn == "none":
        return q, k, ()
    if "rope" in s.fused:
        return *liger.rope(q, k, table, s.traits.qkv == "slices"), ()
    if s.compiled:
        return *compiled.rope(q, k, table), ()
    if turn in NAMED:
        return NAMED[turn](q, k, table)
    return *ROPES[turn](q, k, table), ()


def _output(y: Tensor, layer: Linear, s: Setting) -> Tensor:
    return fused_lora.projections(y, [layer], s)[0] if fused_lora.fits(s, "o", layer) else project(y, layer, s.rows)


def _gated(x: Tensor, modules: Modules, s: Setting, table: Table, mask: Tensor | None, at: Heads, turn: str) -> Tensor:
    """Qwen3-Next's: the second half of the query projection, through a sigmoid, multiplies the output."""
    norm, (first, second) = head_norm(s), head_norms(modules)
    size = s.rows * at.heads * at.head_dim
    q, gate = split(project(x, modules.need("q"), s.rows), (size, size))
    gate = contiguous(gate)
    q = norm(q, first, s.rows * at.heads)
    k = norm(relayout(project(x, modules.need("k"), s.rows)), second, s.rows * at.kv_heads)
    v = project(x, modules.need("v"), s.rows)
    q, k = ROPES[turn](q, k, table)
    k, v = q.storage.tape.cached(k, v)
    y = _attended(q, k, v, s, mask, at)
    y = mul(y, unary(gate, save_input=False, save_output=True))
    return project(y, modules.need("o"), s.rows)


def head_norm(s: Setting, kind: str = "") -> Norm:
    """The norm of queries and keys, of their own `kind` where that is no trait, or Liger's in its place."""
    found = NORMS[kind or s.traits.head_norm]
    if "head_norm" not in s.fused:
        return found
    in_place = "norm" in s.fused
    return lambda x, module, rows: liger.norm(x, module, rows, in_place)


def _separate(x: Tensor, modules: Modules, s: Setting, at: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """One projection each. A norm over whole rows comes before the next projection, one over heads after all."""
    traits = s.traits
    first, second = head_norms(modules) if traits.head_norm else (None, None)
    norm = head_norm(s) if first is not None else None
    if norm is not None and traits.norm_at in ("whole", "first"):
        return _normed(x, modules, s, at, norm)
    q, k, v = _projected(x, modules, s, at)
    if traits.value_scale:
        v = scale(v)
    if traits.own_pairs:
        q, k, v = (own_pair(y, x, modules, f"linear_{name}", s.rows) for y, name in ((q, "q"), (k, "k"), (v, "v")))
    if traits.rope != "partial_gptj" and "rope" not in s.fused:
        q, k = relayout(q), relayout(k)
    if norm is not None and traits.norm_at == "heads":
        q = norm(q, first, s.rows * at.heads)
        k = norm(k, second, s.rows * at.kv_heads) if second is not None else k
    return _clipped(q, k, v, s)


def _clipped(q: Tensor, k: Tensor, v: Tensor, s: Setting) -> tuple[Tensor, Tensor, Tensor]:
    """OLMo's and OLMoE's `clip_qkv`."""
    return (clamped(q), clamped(k), clamped(v)) if s.config.get("clip_qkv") else (q, k, v)


def _projected(x: Tensor, modules: Modules, s: Setting, at: Heads) -> tuple[Tensor, Tensor, Tensor]:
    queries, keys, values = (modules.role(role) for role in ("q", "k", "v"))
    assert queries is not None
    if fused_lora.fits(s, "qkv", queries, keys, values) and keys is not None and values is not None:
        q, k, v = fused_lora.projections(x, [queries, keys, values], s)
        return q, k, v
    q = project(x, queries, s.rows)
    if s.traits.query_scale:
        q = scale(q)
    k = project(x, keys, s.rows) if keys is not None else _shared(x, s.rows * at.kv_heads * at.head_dim)
    return q, k, project(x, values, s.rows) if values is not None else k


def _shared(x: Tensor, n: int) -> Tensor:
    """Keys or values of another layer, counted there."""
    return Tensor(x.storage.tape.nothing, n, x.e)


def _normed(x: Tensor, modules: Modules, s: Setting, at: Heads, norm: Norm) -> tuple[Tensor, Tensor, Tensor]:
    first, second = head_norms(modules)
    if s.traits.norm_at == "whole":
        q = relayout(norm(project(x, modules.need("q"), s.rows), first, s.rows))
        k = relayout(norm(project(x, modules.need("k"), s.rows), second, s.rows))
    else:
        q = norm(relayout(project(x, modules.need("q"), s.rows)), first, s.rows * at.heads)
        k = norm(relayout(project(x, modules.need("k"), s.rows)), second, s.rows * at.kv_heads)
    return _clipped(q, k, project(x, modules.need("v"), s.rows), s)


def _fused(qkv: Tensor, modules: Modules, s: Setting, at: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values taken out of one projection."""
    q_size = s.rows * at.heads * at.head_dim
    k_size = s.rows * at.kv_heads * at.head_dim
    v_size = s.rows * at.kv_heads * at.value_dim
    kind = s.traits.qkv
    if kind == "split":
        q, k, v = split(qkv, (q_size, k_size, v_size))
    elif kind == "chunk":
        q, k, v = split(relayout(qkv), (q_size, k_size, v_size))
    elif kind == "multi_query":
        q, k, v = window(qkv, q_size), select(qkv, k_size), select(qkv, v_size)
    elif kind == "grouped":
        size = s.rows * s.groups * at.head_dim
        q, k, v = window(qkv, q_size), select(qkv, size), select(qkv, size)
        q, k, v = repeat(q, q_size), repeat(k, q_size), repeat(v, q_size)
    else:
        q, k, v = window(qkv, q_size), window(qkv, k_size), window(qkv, v_size)
        if kind == "slices":
            q, k = relayout(q), relayout(k)
    first, second = head_norms(modules) if s.traits.head_norm else (None, None)
    if first is not None and s.traits.norm_at == "heads":
        norm = head_norm(s)
        q = norm(q, first, s.rows * at.heads)
        k = norm(k, second, s.rows * at.kv_heads) if second is not None else k
    return q, k, v


Q_NORMS = ("q_norm", "q_layernorm", "query_layernorm", "q_layernorm.norms", "qk_norm")
K_NORMS = ("k_norm", "k_layernorm", "key_layernorm", "k_layernorm.norms", "qk_norm")


def head_norms(modules: Modules) -> tuple[Linear | None, Linear | None]:
    """The modules that norm queries and keys, where there are any."""
    q = next((found for name in Q_NORMS if (found := modules.leaf(name)) is not None), None)
    k = next((found for name in K_NORMS if (found := modules.leaf(name)) is not None), None)
    return q, k
