"""Sparse attention's indexer (DeepSeek-V3.2, GLM-5): which tokens each token attends to, as a mask.

In transformers the indexer runs without gradients: its parameters are trainable and get none, and all of it is gone
before attention but the mask of b s s elements that every layer makes for itself, and b s k int32 indices. What it
needs for a moment is large: scores of b s heads s, and, of several sequences, each one's keys copied for every query,
b s s index_head_dim elements (torch.matmul lays broadcast operands out). Only its own attention kernels (flash-mla)
do without the mask. Source: transformers 5.23 models/deepseek_v32, models/glm_moe_dsa.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...adapters.linear import project
from ...tape.indexing import cat, split
from ...tape.ops import scale, to, unary
from ...tape.tape import tape_of
from ..norms import layer
from .rope import ROPES

if TYPE_CHECKING:
    from ...adapters.modules import Modules
    from ...tape.tensor import Tensor
    from ..dims import LayerDims
    from .rope import Table

PART = "indexer"


class Selection(NamedTuple):
    """The mask of one layer, and what attention's forward function holds beside it."""

    mask: Tensor | None
    held: tuple[Tensor, ...]


def selection(
    x: Tensor, low: Tensor, modules: Modules, dims: LayerDims, table: Table, mask: Tensor | None, first: bool
) -> Selection:
    """The chosen tokens' indices, then the mask; a layer without an indexer takes the indices of the one before.

    `low` is the compressed query that the indexer shares with attention. GLM-5 hands every layer but the `first` the
    indices of the layer before, which a checkpoint keeps.
    """
    tape, rows = tape_of(x), dims.rows
    chosen = min(dims.attention.index_top_k, dims.length)
    muted, tape.muted = tape.muted, True
    held: tuple[Tensor, ...] = ()
    if dims.arch.indexer == "pairs" and not first:
        held = (tape.new(rows * chosen, 4),)
        tape.carry(held[0].storage)
    if modules.leaf("indexer.wq_b") is not None:
        _scored(x, low, modules, dims, table, mask)
    indices = tape.new(rows * chosen, 4)
    if mask is None:
        tape.muted = muted
        return Selection(None, (*held, indices))
    cells = rows * dims.length
    wide, blank = tape.new(rows * chosen, 8), tape.new(cells, 1)
    hidden = tape.new(cells, 1)
    del wide, blank
    if mask.e > 1:
        narrowed = tape.new(cells, mask.e)
    else:
        inverse = tape.new(cells, 1)
        narrowed = tape.new(cells, 1)
        del inverse
    tape.muted = muted
    return Selection(narrowed, (*held, indices, hidden))


def _scored(x: Tensor, low: Tensor, modules: Modules, dims: LayerDims, table: Table, mask: Tensor | None) -> None:
    """relu(q k') of every index head, weighted and summed over the heads, masked; the largest k of each row."""
    tape, rows, rope = tape_of(x), dims.rows, dims.attention.rope_dim
    queries, keys = modules.require("indexer.wq_b"), modules.require("indexer.wk")
    head = keys.out
    heads = queries.out // head
    q = project(low, queries, rows)
    turned_q, passed_q = split(q, (rows * heads * rope, rows * heads * (head - rope)))
    k = layer(project(x, keys, rows), modules.require("indexer.k_norm"), rows)
    turned_k, passed_k = split(k, (rows * rope, rows * (head - rope)))
    both = ROPES[dims.arch.indexer](turned_q, turned_k, table)
    turned_q, turned_k = both
    del both
    q = cat((turned_q, passed_q))
    k = cat((turned_k, passed_k))
    scores = unary(_products(q, k, dims, heads))
    weights = scale(to(project(x, modules.require("indexer.weights_proj"), rows), 4))
    if tape.autocast:
        weights = to(weights, tape.autocast)
    sums = tape.new(rows * dims.length, scores.e)
    if mask is not None:
        inverse = tape.new(rows * dims.length, 1) if mask.e == 1 else None
        sums = tape.new(rows * dims.length, max(sums.e, mask.e))
        del inverse
    chosen = rows * min(dims.attention.index_top_k, dims.length)
    tape.scratch(chosen * (sums.e + 8 + 4))


def _products(q: Tensor, k: Tensor, dims: LayerDims, heads: int) -> Tensor:
    """q k' of float32 copies, in autocast's width, times a number."""
    tape, cells = tape_of(q), dims.rows * dims.length
    wide_q, wide_k = to(q, 4), to(k, 4)
    e = tape.autocast or 4
    narrow = (to(wide_q, e), to(wide_k, e))
    spread = tape.new(cells * (k.n // dims.rows), e) if dims.batch > 1 else None
    scores = tape.new(cells * heads, e)
    del wide_q, wide_k, narrow, spread
    return scale(scores)
