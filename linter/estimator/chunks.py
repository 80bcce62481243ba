"""Cross entropy over chunks of the sequence, each made float32 by itself.

Sources: torchtune 0.6 modules/loss/ce_chunked_output_loss.py, torchtitan 0.1 components/loss.py
`chunked_cross_entropy_loss`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .adapters import project
from .indexing import cat, split, total
from .ops import made, to
from .tensor import mark

if TYPE_CHECKING:
    from .modules import Linear
    from .setting import Setting
    from .tape import Tape
    from .tensor import Tensor

CHUNKS = 8


def head_in_chunks(h: Tensor, module: Linear, s: Setting, tape: Tape, segment: int) -> Tensor:
    """torchtune: the head takes one chunk of the hidden states at a time; all narrow logits exist before the loss.

    Forward: e + 4 bytes x tokens x vocabulary and a chunk's float32 logits. Backward: the log-probabilities, the
    narrow gradients of the chunks done, two float32 chunks.
    """
    sizes = chunk_rows(s)
    width = h.n // s.rows
    pieces = split(h, [size * width for size in sizes])
    logits = [project(piece, module, size) for piece, size in zip(pieces, sizes, strict=True)]
    for chunk in logits:
        mark(chunk)
    tape.enter(segment)
    one = _compiled if s.compiled else _eager
    return total(cat([one(chunk, tape) for chunk in logits]), 1)


def whole_head(h: Tensor, module: Linear, s: Setting, tape: Tape, segment: int) -> Tensor:
    """torchtitan: whole narrow logits, taken apart in the loss."""
    sizes = chunk_rows(s)
    logits = project(h, module, s.rows)
    mark(logits)
    tape.enter(segment)
    vocabulary = logits.n // s.rows
    chunks = split(logits, [size * vocabulary for size in sizes])
    one = _compiled if s.compiled else _eager
    return total(cat([one(chunk, tape) for chunk in chunks]), 1)


def chunk_rows(s: Setting) -> list[int]:
    """Tokens of each chunk: the job's `loss.chunk`, else an eighth of the sequences."""
    size = s.job.loss.chunk or s.batch * -(-s.length // CHUNKS)
    return [min(size, s.rows - start) for start in range(0, s.rows, size)]


def _eager(logits: Tensor, tape: Tape) -> Tensor:
    return cross_entropy(to(logits, 4), tape)


def _compiled(logits: Tensor, tape: Tape) -> Tensor:
    """One kernel each way: saves the logits as they are."""
    n, e = logits.n, logits.e

    def back(_: Tensor, _kept: object = logits.storage) -> tuple[Tensor]:
        return (tape.new(n, e, logits=True),)

    return made(tape.new(1, 4), tape.node((logits,), back))


def cross_entropy(logits: Tensor, tape: Tape) -> Tensor:
    """log_softmax, which saves its result, and nll_loss, both in the logits' width."""
    n, e = logits.n, logits.e
    probabilities = tape.new(n, e, logits=True)
    kept = probabilities.storage

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor]:
        return (tape.new(n, e, logits=True),)

    made(probabilities, tape.node((logits,), back))
    return made(tape.new(1, e), tape.node((probabilities,), back))
