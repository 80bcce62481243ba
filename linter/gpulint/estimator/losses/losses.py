"""Losses that never hold all logits, or hold them without a float32 cross entropy."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .. import budget
from ..tape.backward import fresh, made
from ..tape.indexing import shortened
from ..tape.labels import labelled
from ..tape.ops import to
from ..tape.tensor import Parameter, Tensor, count_as_logits

if TYPE_CHECKING:
    from ..tape.tape import Tape
    from ..tape.tensor import Backward

PART = "loss"

WHOLE_LOGITS = frozenset({"torch", "smoothed"})
"""Kernels over whole logits, which the model hands over too."""

TILE_ROWS, TILE_COLUMNS = 4096, 32768
"""TRL 1.16 projects tiles of so many tokens and vocabulary entries (trl/kernels/chunked_logprob.py)."""


@labelled("tiled head")
def tiled(h: Tensor, weight: Parameter, rows: int, tape: Tape, chunk: int | None) -> Tensor:
    """TRL's fused head: tiles of logits of `chunk` tokens, made again in backward; gradients are summed in float32.

    Saved: a copy of the scored hidden states and two statistics a row. Backward: float32 gradients of h and of a
    trained head, and the gradients in their own width (trl/kernels/chunked_logprob.py 1.16). One buffer of `chunk`
    tokens x TILE_COLUMNS serves all tiles, however small the vocabulary is; it and the last casts are there until the
    gradients have been narrowed. Under autocast the tile's tokens and its part of a float32 head are cast anew for
    every tile; a name holds the copy before until the next one is there, of the head in backward alone.
    """
    e = tape.autocast or h.e
    copy = tape.new(h.n, h.e)
    kept = (copy.storage, tape.new(2 * rows, 8))
    statistics = tape.new(6 * rows, 4)
    needed, n, width, inner = h.node is not None, h.n, h.e, h.n // rows
    vocabulary = weight.n // inner
    tokens, columns = min(rows, chunk or TILE_ROWS), min(TILE_COLUMNS, vocabulary)
    of_tokens, of_head = (0 if part.e == e else inner * e for part in (h, weight))
    two_of_tokens = of_tokens * (tokens + min(tokens, rows - tokens))

    def buffer() -> Tensor:
        return tape.new(tokens * TILE_COLUMNS, e, logits=True)

    tile = buffer()
    tape.scratch(two_of_tokens + of_head * columns)
    del tile, statistics

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor | None, Tensor | None]:
        wide_h = tape.new(n, 4) if needed else None
        wide_w = tape.new(weight.n, 4) if weight.trainable else None
        tile = buffer()
        tape.scratch(two_of_tokens + of_head * (columns + min(columns, vocabulary - columns)))
        left = tape.new(of_tokens * (rows % tokens or tokens) + of_head * (vocabulary % columns or columns), 1)
        gh = to(wide_h, width) if wide_h is not None else None
        gw = to(wide_w, weight.e) if wide_w is not None else None
        del tile, left
        return gh, gw

    loss = tape.new(1, 4)
    return made(loss, tape.node((h, weight), back))


@labelled("cut cross entropy")
def cut(h: Tensor, weight: Parameter, rows: int, tape: Tape) -> Tensor:
    """Cut cross entropy: no logits at all; the log-sum-exp of each row is saved, gradients are made in backward.

    Operands and gradients have 16 bits (apple/ml-cross-entropy, cut_cross_entropy/cce.py).
    """
    inner, head = to(h, 2), tape.cast(weight, 2)
    kept = (inner.storage, head, tape.new(rows, 4))
    n, needed = inner.n, inner.node is not None

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor | None, Tensor | None]:
        gh = tape.new(n, 2) if needed else None
        return gh, tape.new(weight.n, 2) if weight.trainable else None

    loss = tape.new(1, 4)
    return made(loss, tape.node((inner, head), back))


@labelled("log-probabilities")
def smoothed(logits: Tensor, sequences: int, vocabulary: int, tape: Tape) -> Tensor:
    """The Trainer's loss where labels are smoothed: its model makes no loss, and hands over the logits.

    All but each sequence's last are copied; the log-softmax of the copy and its negation are saved, for the gather and
    the mean over words that read the latter. In 16 bits the sum's gradient is written out (transformers 5.23
    trainer_pt_utils.py `LabelSmoother`, trainer.py `compute_loss`).
    """
    part = shortened(logits, logits.n - sequences * vocabulary, sequences)
    count_as_logits(part)
    n, e = part.n, part.e

    def wide(*_: object, _kept: object = None) -> tuple[Tensor]:
        return (tape.new(n, e, logits=True),)

    softmax = tape.new(n, e, logits=True)
    softmax.node = tape.node((part,), partial(wide, _kept=softmax.storage))
    negated = tape.new(n, e, logits=True)
    negated.node = tape.node((softmax,), wide, saves=0, makes=n * e)
    chosen = _end(tape, (negated,), partial(wide, _kept=negated.storage))
    if e == 4:
        every = _end(tape, (negated,), lambda g: (Tensor(g.storage, n, e, view=True),))
    else:
        every = _end(tape, (negated,), wide)
    return _end(tape, (chosen, every), lambda g: (g, g))


@labelled("log-probabilities")
def log_probabilities(logits: Tensor, sequences: int, tape: Tape) -> Tensor:
    """`selective_log_softmax` of preference and online trainers, one sequence of the batch after the other.

    16 bits: the log-softmax of every sequence is saved for the gather over it, and has a name until the next one's is
    there; backward makes the gather's zeros and
    the softmax's gradient a sequence at a time, then stacks them. float32: the logits are saved, for one gather over
    them all and for the logsumexp of each sequence, whose gradient takes two temporaries; the stack of those and the
    gather's zeros meet at the end. Source: trl/trainer/utils.py 1.16, its steps as torch.profiler shows them.
    """
    n, e, source = logits.n, logits.e, logits.storage
    row = n // sequences
    ends: list[Tensor] = []

    def vocabulary_wide(size: int) -> Tensor:
        return tape.new(size, e, logits=True)

    @labelled(backward="gradients of all rows together")
    def stack_back(*_: Tensor) -> tuple[Tensor]:
        return (vocabulary_wide(n),)

    def logsumexp_back(_: Tensor, _kept: object = source) -> tuple[Tensor]:
        temporaries = vocabulary_wide(row), vocabulary_wide(row)
        gradient = vocabulary_wide(row)
        del temporaries
        return (gradient,)

    if e == 4:
        ends.append(_end(tape, (logits,), lambda _, _kept=source: (vocabulary_wide(n),)))
    budget.bounded(sequences)
    unbound = tape.node((logits,), stack_back, saves=0, slots=sequences)
    for slot in range(sequences):
        part = Tensor(source, row, e, view=True)
        part.node, part.slot = unbound, slot
        if e == 4:
            tape.scratch(row * e)
            ends.append(_end(tape, (part,), logsumexp_back))
            continue
        softmax = vocabulary_wide(row)
        kept = softmax.storage
        softmax.node = tape.node((part,), lambda _, _kept=kept: (vocabulary_wide(row),))
        ends.append(_end(tape, (softmax,), lambda _, _kept=kept: (vocabulary_wide(row),)))
        del kept
    return _end(tape, tuple(ends), lambda g: (g,) * len(ends))


def kernel_log_probabilities(logits: Tensor, rows: int, tape: Tape) -> Tensor:
    """`selective_log_softmax` in one Triton kernel: the logits themselves are saved, in whatever width they have.

    Log-probability, entropy, log-sum and expected logit of each row are float32, of which the last two are saved. The
    kernel writes the gradient into one new tensor (trl/kernels/logprob_entropy.py, 1.14 on).
    """
    outputs = tape.new(2 * rows, 4)
    return fresh(outputs, logits, (logits.storage, tape.new(2 * rows, 4)), logits=True)


def whole_log_probabilities(logits: Tensor, sequences: int, tape: Tape) -> Tensor:
    """`logits[:, :-1].log_softmax(-1).gather(...)` of older preference trainers, all sequences at once.

    The slice of several sequences is laid out anew for the kernel (ATen/native/cuda/SoftMax.cu `host_softmax`).
    Saved: the log-softmax. Backward: the gather's zeros and the softmax's gradient, which the slice lays into zeros.
    Source: LLaMA-Factory 0.9.5 train/trainer_utils.py `get_batch_logps`; trl 0.9 to 0.14 trainer/dpo_trainer.py.
    """
    n, e = logits.n, logits.e

    def vocabulary_wide() -> Tensor:
        return tape.new(n, e, logits=True)

    part = Tensor(logits.storage, n, e, view=True)
    part.node = tape.node((logits,), lambda _: (vocabulary_wide(),), saves=0)
    laid = vocabulary_wide() if sequences > 1 else part
    softmax = vocabulary_wide()
    del laid
    kept = softmax.storage
    softmax.node = tape.node((part,), lambda _, _kept=kept: (vocabulary_wide(),))
    return _end(tape, (softmax,), lambda _, _kept=kept: (vocabulary_wide(),))


@labelled("loss")
def _end(tape: Tape, inputs: tuple[Tensor, ...], back: Backward) -> Tensor:
    result = tape.new(1, 4)
    return made(result, tape.node(inputs, back))
