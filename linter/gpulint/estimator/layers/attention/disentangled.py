"""DeBERTa's attention: scores of words and words, of words and distances, and of distances and words.

b sequences of s tokens, n heads, k buckets of distances in each direction. Source: transformers 5.23
models/deberta_v2/modeling_deberta_v2.py `DisentangledSelfAttention`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...adapters.linear import project
from ...tape.indexing import repeat
from ...tape.labels import labelled
from ...tape.matmuls import product
from ...tape.ops import add, add_to, copied, dropout, leaf, scale, softmax
from ...tape.tensor import Tensor
from ..norms import NORMS

if TYPE_CHECKING:
    from ...adapters.modules import Linear, Modules
    from ...tape.tape import Tape
    from ..setting import Setting

PART = "attention"


@labelled("distances of positions")
def distances(tape: Tape, s: Setting, outside: Modules) -> dict[str, tuple[Tensor, Tensor]]:
    """The vectors of distances, normed once for all layers, the matrix of distances, a float32 mask of all pairs."""
    pairs = tape.new(s.batch * s.length * s.length, 4)
    table = outside.leaf("rel_embeddings")
    if table is None:
        return {"mask": (pairs, pairs)}
    vectors = leaf(tape, table.weight)
    norm = outside.named.get("encoder.LayerNorm") or outside.leaf("encoder.LayerNorm")
    if norm is not None:
        vectors = NORMS[s.traits.norm](vectors, norm, table.out)
    return {"distances": (vectors, tape.new(s.length * s.length, 8)), "mask": (pairs, pairs)}


def disentangled(x: Tensor, modules: Modules, s: Setting, shared: dict[str, tuple[Tensor, Tensor]]) -> Tensor:
    """Attention with its output projection."""
    tape, at = x.storage.tape, s.at(0)
    square, n = at.scores, s.rows * s.heads * s.head_dim
    q = copied(project(x, modules.need("q"), s.rows))
    k = copied(project(x, modules.need("k"), s.rows))
    v = copied(project(x, modules.need("v"), s.rows))
    scores = product(q, scale(k), square)
    if "distances" in shared:
        vectors = dropout(shared["distances"][0], s.residual_dropout)
        both = _by_distance(q, k, vectors, modules, s, square)
        scores = add(scores, both)
        del both, vectors
    mask = tape.new(s.batch * s.length * s.length, 1)
    scores = _filled(scores, mask)
    weights = softmax(scores, (tape.autocast and 4) or scores.e)
    weights = dropout(weights, s.attention_dropout)
    y = copied(product(weights, v, n))
    del scores, weights
    return project(y, modules.need("o"), s.rows)


def _by_distance(q: Tensor, k: Tensor, vectors: Tensor, modules: Modules, s: Setting, square: int) -> Tensor:
    """Words with distances, then distances with words, each picked by the distance of a pair of positions."""
    tape = q.storage.tape
    buckets = vectors.n // s.hidden
    keys = _spread(vectors, modules.leaf("pos_key_proj") or modules.need("k"), buckets, s)
    queries = _spread(vectors, modules.leaf("pos_query_proj") or modules.need("q"), buckets, s)
    wide = s.batch * s.heads * s.length * buckets
    found: Tensor | None = None
    for words, others in ((q, keys), (k, queries)):
        table = product(words, others, wide)
        table = _picked(table, square, tape.new(s.length * s.length, 8))
        table = scale(table)
        found = add(table, Tensor(tape.nothing, 1, table.e)) if found is None else add_to(found, table)
    assert found is not None
    return found


def _spread(vectors: Tensor, module: Linear, buckets: int, s: Setting) -> Tensor:
    """Distances through a projection, for every head of every sequence."""
    y = copied(project(vectors, module, buckets))
    return repeat(y, y.n * s.batch)


def _picked(x: Tensor, n: int, index: Tensor) -> Tensor:
    """torch.gather: saves x and the index; backward scatters into zeros of x's size."""
    tape, was, e = x.storage.tape, x.n, x.e
    y = tape.new(n, e)
    y.node = tape.node((x,), lambda _, _kept=(x.storage, index): (tape.new(was, e),))
    return y


def _filled(x: Tensor, mask: Tensor) -> Tensor:
    """masked_fill: a copy; saves the mask, and so does its gradient's."""
    tape, n, e = x.storage.tape, x.n, x.e
    y = tape.new(n, e)
    y.node = tape.node((x,), lambda _, _kept=mask: (tape.new(n, e),))
    return y
