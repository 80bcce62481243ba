"""T5's attention with biases by distance, of a stack to itself and to the encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...tape.backward import made
from ...tape.labels import labelled
from ...tape.matmuls import product
from ...tape.ops import add, contiguous, copied, dropout, masked, scale, to
from ...tape.rows import softmax
from ...tape.tape import tape_of
from ...tape.tensor import Tensor
from .kernels import up_to

if TYPE_CHECKING:
    from .heads import Heads

PART = "layers of both stacks"


@labelled("mask and scores")
def by_distance(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, at: Heads, causal: bool) -> Tensor:
    """T5's eager attention: scores times one, plus the bias, plus the mask, softmax in the width that this gives."""
    tape, moved = tape_of(q), at.batch > 1
    scores = product(copied(q) if moved else q, copied(k) if moved else k, at.scores)
    scores = scale(scores)
    scores = add(scores, bias)
    if causal:
        scores = add(scores, tape.new(at.batch * at.length * at.length, q.e))
    weights = softmax(scores, (tape.autocast and 4) or scores.e)
    del scores
    weights = dropout(weights, at.dropout)
    tape.returned = weights.storage
    y = product(weights, copied(v) if moved else v, q.n)
    return copied(y) if moved else contiguous(y)


@labelled("output and statistics")
def efficient(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, at: Heads, causal: bool) -> Tensor:
    """The memory-efficient kernel with a bias that wants a gradient, one for every sequence before they are summed."""
    tape = tape_of(q)
    e = tape.autocast or q.e
    mask = masked(bias, at.length * at.length) if causal else bias if at.keys != at.length else contiguous(bias)
    mask = to(mask, e)
    q, k, v = to(q, e), to(k, e), to(v, e)
    n, kn, vn, rows = q.n, k.n, v.n, at.batch * at.heads * at.length
    y = tape.new(n, e)
    lse = tape.new(at.batch * at.heads * up_to(at.length, 32), 4)
    kept = (q.storage, k.storage, v.storage, y.storage, lse, mask.storage)
    wanted, scores = mask.node is not None, at.scores

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor | None, ...]:
        found = tape.new(n, e), tape.new(kn, e), tape.new(vn, e), tape.new(scores, e) if wanted else None
        tape.scratch(4 * rows * (1 + at.head_dim))
        return found

    return made(y, tape.node((q, k, v, mask), back))
