"""Self-attention layers: projections, norms of queries and keys, rotary embedding, kernel, output projection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .adapters import project
from .kernels import attend
from .norms import NORMS
from .ops import relayout, scale, split, window
from .rope import ROPES

if TYPE_CHECKING:
    from .kernels import Heads
    from .modules import Linear, Modules
    from .rope import Table
    from .setting import Setting
    from .tape import Tensor


def attention(x: Tensor, modules: Modules, s: Setting, table: Table, mask: Tensor | None, at: Heads) -> Tensor:
    """softmax(q k') v and its output projection."""
    traits = s.traits
    turn = ROPES[traits.rope]
    q, k, v = _projected(x, modules, s, at)
    if traits.rope == "partial":
        turned = turn(q, table), turn(k, table)
        q, k = turned
        del turned
    elif traits.rope != "none":
        turned = turn(q, table), turn(k, table)
        q, k = turned
        del turned
    y = attend(s.attention, q, k, v, mask, at)
    return project(y, modules.need("o"), s.rows)


def _projected(x: Tensor, modules: Modules, s: Setting, at: Heads) -> tuple[Tensor, Tensor, Tensor]:
    traits = s.traits
    fused = modules.role("qkv")
    q_size = s.rows * at.heads * at.head_dim
    k_size = s.rows * at.kv_heads * at.head_dim
    v_size = s.rows * at.kv_heads * at.value_dim
    if fused is not None:
        qkv = project(x, fused, s.rows)
        if traits.qkv == "split":
            q, k, v = split(qkv, (q_size, k_size, v_size))
        else:
            q, k, v = window(qkv, q_size), window(qkv, k_size), window(qkv, v_size)
        return (relayout(q), relayout(k), v) if traits.rope != "none" else (q, k, v)
    q = project(x, modules.need("q"), s.rows)
    q_norm, k_norm = _head_norms(modules)
    norm = NORMS[traits.head_norm] if traits.head_norm and q_norm is not None else None
    if traits.query_scale:
        q = scale(q)
    if norm is None:
        q = relayout(q) if traits.rope != "none" else q
        k = project(x, modules.need("k"), s.rows)
        k = relayout(k) if traits.rope != "none" else k
        v = project(x, modules.need("v"), s.rows)
        return q, k, v
    whole = traits.norm_at == "whole"
    rows, k_rows = (s.rows, s.rows) if whole else (s.rows * at.heads, s.rows * at.kv_heads)
    q = relayout(norm(q, q_norm, rows)) if whole else norm(relayout(q), q_norm, rows)
    k = project(x, modules.need("k"), s.rows)
    k = relayout(norm(k, k_norm, k_rows)) if whole else norm(relayout(k), k_norm, k_rows)
    v = project(x, modules.need("v"), s.rows)
    return q, k, v


Q_NORMS = ("q_norm", "q_layernorm", "query_layernorm", "q_layernorm.norms")
K_NORMS = ("k_norm", "k_layernorm", "key_layernorm", "k_layernorm.norms")


def _head_norms(modules: Modules) -> tuple[Linear | None, Linear | None]:
    q = next((found for name in Q_NORMS if (found := modules.leaf(name)) is not None), None)
    k = next((found for name in K_NORMS if (found := modules.leaf(name)) is not None), None)
    return q, k
