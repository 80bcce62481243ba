"""Multi-head latent attention (DeepSeek-V2 and V3): queries and keys through low-rank projections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...adapters.linear import project
from ...estimate import NotEstimable
from ...tape.indexing import cat, filled, split
from ...tape.ops import mul, relayout, scale, to, unary
from ...tape.tape import tape_of
from ..norms import NORMS
from .indexer import selection
from .kernels import attend
from .rope import ROPES

if TYPE_CHECKING:
    from ...adapters.modules import Modules
    from ...tape.tensor import Tensor
    from ..dims import LayerDims
    from .heads import AttentionInputs

PART = "latent attention"


def latent_attention(
    x: Tensor, modules: Modules, dims: LayerDims, inputs: AttentionInputs, first: bool = True
) -> Tensor:
    """q from (h -> q_lora_rank ->) heads; k and v from h -> kv_lora_rank -> heads, one shared rotary key part.

    Without a q_lora_rank one projection makes the queries; a rank of 0 leaves none (NotEstimable).
    """
    at, table, mask, _ = inputs
    norm = NORMS[dims.arch.norm]
    rows = dims.rows
    low = x
    down, up = modules.leaf("q_a_proj"), modules.leaf("q_b_proj")
    if down is not None and up is not None:
        low = norm(project(x, down, rows), modules.leaf("q_a_layernorm"), rows)
        q = project(low, up, rows)
    elif modules.role("q") is None and not dims.attention.q_lora_rank:
        raise NotEstimable(f"the config of {dims.model_id} gives its queries a q_lora_rank of 0")
    else:
        q = project(x, modules.need("q"), rows)
    if not dims.arch.indexer:
        low = x
    q = relayout(q)
    rope = dims.attention.rope_dim
    if dims.arch.rope != "none":
        passed, rotated = split(q, (rows * at.heads * (at.head_dim - rope), rows * at.heads * rope))
    squeezed = modules.require("kv_a_proj_with_mqa")
    expand = modules.require("kv_b_proj")
    compressed = project(x, squeezed, rows)
    latent, shared = split(compressed, (compressed.n - rows * rope, rows * rope))
    latent = norm(latent, modules.leaf("kv_a_layernorm"), rows)
    if dims.arch.rope != "none":
        both = ROPES[dims.arch.rope](rotated, shared, table)
        rotated, shared = both
        del both
        q = cat((passed, rotated))
        if dims.arch.query_scale:
            q = scale(q)
        q.heads_first = True
    latent, shared = tape_of(q).cached(latent, shared)
    opened = project(latent, expand, rows)
    plain, v = split(relayout(opened), (rows * at.heads * (at.head_dim - rope), rows * at.heads * at.value_dim))
    k = filled(plain, shared, q.n)
    del opened, plain
    if dims.arch.indexer:
        chosen = selection(x, low, modules, dims, table, mask, first)
        mask = chosen.mask
    y = attend(dims.attention.implementation, q, k, v, mask, at)
    if dims.arch.output_gate == "heads":
        gate = to(project(x, modules.require("g_proj"), rows), 4)
        y = mul(y, to(unary(gate, save_input=False, save_output=True), y.e))
    return project(y, modules.need("o"), rows)
