"""prime-rl's fused head: log-probabilities of labels, a piece of the logits at a time.

`_ChunkedLogProbEntropyFn` goes over columns of the vocabulary for all tokens (prime-rl 0.3 to 0.4),
`_SequenceChunkedLogProbEntropyFn` over tokens, and for each of their pieces over 8192 columns (from 0.4.1.dev127,
commit 93cd1fa37 on). Both are written in eager torch with loops that bind names anew, so that a name holds what the
piece before made until the next is there. Source: src/prime_rl/trainer/models/layers/lm_head.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..tape.backward import made
from ..tape.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..layers.dims import LayerDims
    from ..tape.tape import Tape
    from ..tape.tensor import Parameter

COLUMNS = 8192
"""`vocab_chunk_size` of a piece of tokens."""


class _Names(NamedTuple):
    """What the loop's variables hold from one piece to the next, by name."""

    held: dict[str, Tensor]
    tape: Tape
    rows: int
    columns: int
    in_place: bool

    def wide(self) -> Tensor:
        """A float32 tensor as large as the piece's logits."""
        return self.tape.new(self.rows * self.columns, 4, logits=True)

    def scaled(self, e: int) -> None:
        """Logits of `e` bytes, their float32 copy and its product with the inverse temperature.

        Before there was a temperature for each token, the copy was scaled in place.
        """
        self.held["logits"] = self.tape.new(self.rows * self.columns, e, logits=True)
        copy = self.wide()
        self.held["scaled"] = copy if self.in_place else self.wide()

    def summed(self) -> None:
        """`_online_logsumexp_and_weighted_update`: less their largest, the exponential of that, times the logits."""
        less = self.wide()
        powers = self.wide()
        del less
        product = self.wide()
        del product, powers

    def gradient(self) -> None:
        """The probabilities, and the gradient of the logits, which the temperature scales once more."""
        less = self.wide()
        self.held["probabilities"] = self.wide()
        del less
        self.held["gradient"] = self.wide()
        if not self.in_place:
            self.held["gradient"] = self.wide()


def head(h: Tensor, weight: Parameter, rows: int, dims: LayerDims, tape: Tape) -> Tensor:
    """Log-probabilities and entropies of `rows` tokens, float32.

    Saved: hidden states, head, labels, inverse temperatures and the log-sum of each row. Backward makes the logits of
    each piece again, and adds to whole gradients of hidden states and head, which begin as zeros; before 0.7.1 to
    those that nobody asked for, too. Bytes per element of a piece of 16-bit logits, from the second on: forward 14;
    backward 22, of logits (2), these scaled (4), their difference to the log-sum (4), its exponential (4), and the
    probabilities (4) and the gradient (4) of the piece before.
    """
    n, e, inner = h.n, h.e, h.n // rows
    in_place, wasteful = dims.loss.scales_in_place, dims.loss.needless_gradients
    needed, trained = h.node is not None or wasteful, weight.trainable or wasteful
    pieces = list(_pieces(rows, weight.n // inner, dims))
    kept = (h.storage, tape.new(rows, 8), tape.new(2 * rows, 4))
    results = tape.new(2 * rows, 4)
    held: dict[str, Tensor] = {}
    statistics = tape.new(4 * rows, 4)
    for tokens, columns in pieces:
        names = _Names(held, tape, tokens, columns, in_place)
        names.scaled(e)
        names.summed()
    held.clear()
    del statistics

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor | None, Tensor | None]:
        gh = tape.new(n, e) if needed else None
        gw = tape.new(weight.n, weight.e) if trained else None
        held: dict[str, Tensor] = {}
        for tokens, columns in pieces:
            names = _Names(held, tape, tokens, columns, in_place)
            names.scaled(e)
            names.gradient()
            for wanted, width, size in ((gh, e, tokens * inner), (gw, weight.e, columns * inner)):
                if wanted is not None:
                    narrow = tape.new(tokens * columns, width, logits=True)
                    part = tape.new(size, width)
                    del narrow, part
        held.clear()
        return gh if h.node is not None else None, gw if weight.trainable else None

    loss = Tensor(results.storage, results.n, results.e, view=True)
    return made(loss, tape.node((h, weight), back))


def _pieces(rows: int, vocabulary: int, dims: LayerDims) -> Iterator[tuple[int, int]]:
    """Tokens and columns of the pieces: two whole ones of each kind and what is left, since those between are alike."""
    chunk = max(1, dims.job.loss.chunk or COLUMNS)
    by_columns = dims.job.loss.logits == "columns"
    for tokens in [rows] if by_columns else _two(rows, chunk):
        for columns in _two(vocabulary, chunk if by_columns else COLUMNS):
            yield tokens, columns


def _two(whole: int, size: int) -> list[int]:
    """At most two pieces of `size`, and the last one where it is smaller."""
    count, rest = divmod(whole, size)
    return [size] * min(2, count) + ([rest] if rest else [])
