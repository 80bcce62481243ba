"""MPNet's attention: a bias for every head and distance, made once and added to every layer's scores.

Source: transformers 5.23 models/mpnet/modeling_mpnet.py `MPNetSelfAttention`, `MPNetEncoder.compute_position_bias`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...adapters.linear import project
from ...tape.indexing import embedding, repeat
from ...tape.ops import add, add_to, contiguous, copied, dropout, scale
from ...tape.rows import softmax
from ...tape.tape import tape_of
from .heads import heads_of
from .kernels import heads_product

if TYPE_CHECKING:
    from ...adapters.modules import Modules
    from ...tape.tape import Tape
    from ...tape.tensor import Tensor
    from ..dims import LayerDims


def biases(tape: Tape, dims: LayerDims, outside: Modules) -> dict[str, tuple[Tensor, Tensor]]:
    """The bias of each pair of positions, laid out for every head and sequence."""
    table, square = outside.require("relative_attention_bias"), dims.length * dims.length
    values = embedding(tape, square, table.weight, dims.attention.heads, tape.new(square, 8))
    laid = repeat(values, dims.batch * dims.attention.heads * square)
    return {"bias": (laid, laid)}


def biased(
    x: Tensor, modules: Modules, dims: LayerDims, shared: dict[str, tuple[Tensor, Tensor]], mask: Tensor | None
) -> Tensor:
    """Attention with its output projection; scores and probabilities keep their names to the end."""
    tape, at, moved = tape_of(x), heads_of(dims, 0), dims.batch > 1
    q, k, v = (project(x, modules.need(role), dims.rows) for role in ("q", "k", "v"))
    scores = scale(heads_product(q, k, at.scores, moved, moved))
    scores = add_to(scores, shared["bias"][0])
    if mask is not None:
        scores = add(scores, mask)
    weights = softmax(scores, (tape.autocast and 4) or scores.e)
    weights = dropout(weights, dims.dropout.attention)
    y = heads_product(weights, v, q.n, False, moved)
    y = copied(y) if moved else contiguous(y)
    out = project(y, modules.need("o"), dims.rows)
    del scores, weights
    return out
