"""Cross entropy taken over a few tokens at a time, so that only their logits are float32 at once.

What is whole all the same is `Loss.logits`: nothing (TRL's tiles, `losses.tiled`), the 16-bit logits (axolotl), pieces
of them that the head makes one after the other (torchtune, LitGPT), or nothing because each piece goes backward before
the next is made (torchtitan).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import budget
from ..adapters.linear import project
from ..tape.backward import fresh, made
from ..tape.indexing import split
from ..tape.labels import labelled
from ..tape.ops import add, to
from ..tape.tensor import Tensor

if TYPE_CHECKING:
    from ..adapters.modules import Linear
    from ..layers.dims import LayerDims
    from ..tape.tape import Tape


@labelled("log-probabilities and labels")
def cross_entropy(logits: Tensor, labels: Tensor | None, tape: Tape) -> Tensor:
    """`torch.nn.functional.cross_entropy`: log_softmax in the logits' own width, then nll_loss.

    Saved: the log-probabilities, rows x vocabulary, and the labels; before torch 1.11 the logits too. Backward: the
    gradient of nll_loss and that of log_softmax, both of that size. Under autocast nll_loss gets a float32 copy of
    16-bit log-probabilities and saves that; log_softmax is told its dtype, which autocast leaves alone
    (aten/src/ATen/native/LossNLL.cpp `cross_entropy_loss`, autocast_mode.h `fp32_set_opt_dtype`).
    """
    if tape.loss_parallel:
        return _divided(to(logits, 4) if tape.autocast else logits, labels, tape)
    n, e = logits.n, logits.e
    probabilities = tape.new(n, e, logits=True)
    wide = 4 if tape.autocast else e
    read = logits.storage if tape.inputs_of_softmax else None
    kept = probabilities.storage

    @labelled(backward="gradient of log_softmax")
    def log_softmax_back(_: Tensor, _kept: object = (kept, read)) -> tuple[Tensor]:
        return (tape.new(n, e, logits=True),)

    probabilities.node = tape.node((logits,), log_softmax_back)
    probabilities = to(probabilities, wide)
    kept = probabilities.storage

    @labelled(backward="gradient of nll_loss")
    def nll_back(_: Tensor, _kept: object = (kept, labels)) -> tuple[Tensor]:
        return (tape.new(n, wide, logits=True),)

    loss = tape.new(1, 4)
    return made(loss, tape.node((probabilities,), nll_back))


@labelled("probabilities")
def _divided(wide: Tensor, labels: Tensor | None, tape: Tape) -> Tensor:
    """The same over a rank's part of the vocabulary (torch/distributed/tensor/parallel/loss.py 2.13).

    log_softmax in steps: the logits less their maximum, the exponential of that, the result. Backward is one function:
    zeros with the targets, the exponential of the log-probabilities, their sum and its product with the loss's
    gradient, which goes through log_softmax as it is.
    """
    n, e = wide.n, wide.e
    shifted = tape.new(n, e, logits=True)
    powers = tape.new(n, e, logits=True)
    del powers
    probabilities = tape.new(n, e, logits=True)
    del shifted
    kept = probabilities.storage

    def back(_: Tensor, _kept: object = (kept, labels)) -> tuple[Tensor]:
        targets = tape.new(n, e, logits=True)
        powers = tape.new(n, e, logits=True)
        added = tape.new(n, e, logits=True)
        del powers
        gradient = tape.new(n, e, logits=True)
        del targets, added
        return (gradient,)

    probabilities.node = tape.node((wide,), lambda g, _kept=kept: (g,))
    loss = tape.new(1, 4)
    return made(loss, tape.node((probabilities,), back))


@labelled("logits")
def compiled(logits: Tensor, rows: int, tape: Tape) -> Tensor:
    """The same in one graph of torch.compile: the logits are saved, and the largest and the log-sum of each row.

    What is made of them again fuses into the kernel that writes the gradient, in the logits' own width (partition of
    `min_cut_rematerialization_partition`, torch 2.13, of a float32 cross entropy over 16-bit logits; that nll_loss
    scatters into zeros is one pointwise kernel, torch/_inductor `optimize_scatter_upon_const_tensor`).
    """
    kept = logits.storage, tape.new(2 * rows, 4)
    return fresh(tape.new(1, 4), logits, kept, logits=True)


def one(logits: Tensor, rows: int, dims: LayerDims, tape: Tape) -> Tensor:
    """The loss of one piece: upcast, then cross entropy, compiled together or not."""
    if dims.loss.compiled:
        return compiled(logits, rows, tape)
    wide = logits if dims.loss.upcast == "never" else to(logits, 4)
    return cross_entropy(wide, None, tape)


def of_whole(logits: Tensor, rows: int, dims: LayerDims, tape: Tape) -> Tensor:
    """Whole logits taken apart; the gradients of the pieces are concatenated (axolotl monkeypatch/loss/chunked.py)."""
    sizes = lengths(rows, dims)
    width = logits.n // rows
    pieces = split(logits, [size * width for size in sizes])
    return total([one(piece, size, dims, tape) for piece, size in zip(pieces, sizes, strict=True)])


def of_list(pieces: list[Tensor], rows: int, dims: LayerDims, tape: Tape) -> Tensor:
    """Pieces that the head made one by one (torchtune 0.5 CEWithChunkedOutputLoss, litgpt/utils.py)."""
    return total([one(piece, size, dims, tape) for piece, size in zip(pieces, lengths(rows, dims), strict=True)])


def heads(h: Tensor, module: Linear, rows: int, dims: LayerDims) -> list[Tensor]:
    """The head over each piece of the hidden states."""
    sizes = lengths(rows, dims)
    width = h.n // rows
    parts = split(h, [size * width for size in sizes])
    return [project(part, module, size) for part, size in zip(parts, sizes, strict=True)]


def in_passes(h: Tensor, module: Linear, rows: int, dims: LayerDims, tape: Tape) -> Tensor:
    """Head, loss and backward of each piece in turn; the gradient of h is collected in float32, then cast.

    Alive at once: one piece's 16-bit logits, their float32 copy, log-probabilities and gradients (the logits and their
    gradient where it is compiled), the gradient of the head, and the buffer (torchtitan components/loss.py).
    """
    n, e, weight = h.n, h.e, module.weight
    size = lengths(rows, dims)[0]
    part, vocabulary = size * (n // rows), weight.n // (n // rows)
    copies = tape.new(n, e)
    buffer = tape.new(n, 4)
    summed = tape.new(weight.n, weight.e) if weight.trainable else None
    logits = size * vocabulary
    more = 4 if tape.loss_parallel else 0
    forward, backward = (e, 2 * e) if dims.loss.compiled else (8 + e + more, 12 + more)
    tape.scratch(max(forward, backward) * logits)
    tape.scratch(e * logits + part * e + (weight.n * weight.e if summed is not None else 0))
    gradient = to(buffer, e)
    del copies, buffer

    def back(_: Tensor) -> tuple[Tensor, Tensor | None]:
        return Tensor(gradient.storage, n, e, view=True), summed

    loss = tape.new(1, 4)
    return made(loss, tape.node((h, weight), back))


def lengths(rows: int, dims: LayerDims) -> list[int]:
    """Tokens of each piece: `loss.chunk`, the last one what is left."""
    chunk = min(rows, dims.job.loss.chunk or rows)
    whole, rest = divmod(rows, chunk)
    budget.bounded(whole)
    return [chunk] * whole + ([rest] if rest else [])


def total(losses: list[Tensor]) -> Tensor:
    """Their sum."""
    result = losses[0]
    for loss in losses[1:]:
        result = add(result, loss)
    return result
