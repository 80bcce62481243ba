"""DeBERTa's attention: scores of words and words, of words and distances, and of distances and words.

b sequences of s tokens, n heads, k buckets of distances in each direction. Source: transformers 5.23
models/deberta_v2/modeling_deberta_v2.py `DisentangledSelfAttention`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...adapters.linear import project
from ...tape.backward import fresh
from ...tape.indexing import repeat
from ...tape.labels import labelled
from ...tape.matmuls import product
from ...tape.ops import add, add_to, copied, dropout, leaf, scale
from ...tape.rows import softmax
from ...tape.tape import tape_of
from ...tape.tensor import Tensor
from ..norms import NORMS
from .heads import heads_of

if TYPE_CHECKING:
    from ...adapters.modules import Linear, Modules
    from ...tape.tape import Tape
    from ..dims import LayerDims

PART = "attention"


@labelled("distances of positions")
def distances(tape: Tape, dims: LayerDims, outside: Modules) -> dict[str, tuple[Tensor, Tensor]]:
    """The vectors of distances, normed once for all layers, the matrix of distances, a float32 mask of all pairs."""
    pairs = tape.new(dims.batch * dims.length * dims.length, 4)
    table = outside.leaf("rel_embeddings")
    if table is None:
        return {"mask": (pairs, pairs)}
    vectors = leaf(tape, table.weight)
    norm = outside.named.get("encoder.LayerNorm") or outside.leaf("encoder.LayerNorm")
    if norm is not None:
        vectors = NORMS[dims.arch.norm](vectors, norm, table.out)
    return {"distances": (vectors, tape.new(dims.length * dims.length, 8)), "mask": (pairs, pairs)}


def disentangled(x: Tensor, modules: Modules, dims: LayerDims, shared: dict[str, tuple[Tensor, Tensor]]) -> Tensor:
    """Attention with its output projection."""
    tape, at = tape_of(x), heads_of(dims, 0)
    square, n = at.scores, dims.rows * dims.attention.heads * dims.attention.head_dim
    q = copied(project(x, modules.need("q"), dims.rows))
    k = copied(project(x, modules.need("k"), dims.rows))
    v = copied(project(x, modules.need("v"), dims.rows))
    scores = product(q, scale(k), square)
    if "distances" in shared:
        vectors = dropout(shared["distances"][0], dims.dropout.residual)
        both = _by_distance(q, k, vectors, modules, dims, square)
        scores = add(scores, both)
        del both, vectors
    mask = tape.new(dims.batch * dims.length * dims.length, 1)
    scores = _filled(scores, mask)
    weights = softmax(scores, (tape.autocast and 4) or scores.e)
    weights = dropout(weights, dims.dropout.attention)
    y = copied(product(weights, v, n))
    del scores, weights
    return project(y, modules.need("o"), dims.rows)


def _by_distance(q: Tensor, k: Tensor, vectors: Tensor, modules: Modules, dims: LayerDims, square: int) -> Tensor:
    """Words with distances, then distances with words, each picked by the distance of a pair of positions."""
    tape = tape_of(q)
    buckets = vectors.n // dims.hidden
    keys = _spread(vectors, modules.leaf("pos_key_proj") or modules.need("k"), buckets, dims)
    queries = _spread(vectors, modules.leaf("pos_query_proj") or modules.need("q"), buckets, dims)
    wide = dims.batch * dims.attention.heads * dims.length * buckets
    found: Tensor | None = None
    for words, others in ((q, keys), (k, queries)):
        table = product(words, others, wide)
        table = _picked(table, square, tape.new(dims.length * dims.length, 8))
        table = scale(table)
        found = add(table, Tensor(tape.nothing, 1, table.e)) if found is None else add_to(found, table)
    assert found is not None
    return found


def _spread(vectors: Tensor, module: Linear, buckets: int, dims: LayerDims) -> Tensor:
    """Distances through a projection, for every head of every sequence."""
    y = copied(project(vectors, module, buckets))
    return repeat(y, y.n * dims.batch)


def _picked(x: Tensor, n: int, index: Tensor) -> Tensor:
    """torch.gather: saves x and the index; backward scatters into zeros of x's size."""
    return fresh(tape_of(x).new(n, x.e), x, (x.storage, index))


def _filled(x: Tensor, mask: Tensor) -> Tensor:
    """masked_fill: a copy; saves the mask, and so does its gradient's."""
    return fresh(tape_of(x).new(x.n, x.e), x, mask)
