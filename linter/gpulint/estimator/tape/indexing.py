"""Views, windows, copies and look-ups on the tape: parts of tensors and their joining.

The gradient of a window is copied into zeros of the whole; that of a look-up is added into them (torch 2.13,
FunctionsManual.cpp).
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from .backward import fresh, made
from .labels import labelled
from .ops import contiguous
from .tape import tape_of
from .tensor import Tensor, wider

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .tape import Tape
    from .tensor import Parameter


@labelled("repeated copy")
def repeat(x: Tensor, n: int) -> Tensor:
    """Keys or values repeated for every query head; backward sums over the repeats."""
    return fresh(tape_of(x).new(n, x.e), x)


def expand(x: Tensor, n: int) -> Tensor:
    """x read `n` elements wide without a copy; backward sums over the repeats."""
    if x.n == n:
        return x
    return fresh(Tensor(x.storage, n, x.e, view=True), x)


@labelled("output")
def cat(parts: Sequence[Tensor]) -> Tensor:
    """Concatenation; the gradients are windows of one gradient."""
    tape = tape_of(parts[0])
    sizes = [part.n for part in parts]
    y = tape.new(sum(sizes), reduce(wider, (part.e for part in parts)))
    return made(
        y, tape.node(tuple(parts), lambda g: tuple(Tensor(g.storage, n, g.e, view=True) for n in sizes), saves=0)
    )


def stack(parts: Sequence[Tensor]) -> Tensor:
    """Tensors side by side in a new dimension; the gradients are windows of one gradient."""
    return cat(parts)


@labelled("keys put together")
def filled(a: Tensor, b: Tensor, n: int) -> Tensor:
    """A new tensor of `n` elements that a and b are copied into; each copy clones the gradient (CopySlices)."""
    tape = tape_of(a)
    an, bn, e = a.n, b.n, a.e
    y = tape.new(n, e)

    def back(_: Tensor) -> tuple[Tensor, Tensor]:
        clone = tape.new(n, e)
        second = tape.new(bn, e)
        del clone
        clone = tape.new(n, e)
        first = tape.new(an, e)
        del clone
        return first, second

    return made(y, tape.node((a, b), back, saves=0, makes=an * e))


@labelled("slice")
def window(x: Tensor, n: int) -> Tensor:
    """A slice: a view whose backward copies the gradient into zeros of the whole size."""
    return fresh(Tensor(x.storage, n, x.e, view=True), x, logits=x.storage.logits)


def shortened(x: Tensor, n: int, sequences: int) -> Tensor:
    """`x[..., :-1, :].contiguous()`: a copy, but of one sequence, whose first rows are contiguous as they lie."""
    part = window(x, n)
    return part if sequences == 1 else contiguous(part)


@labelled("padded copy")
def padded(x: Tensor, n: int) -> Tensor:
    """torch.nn.functional.pad to `n` elements: a copy even where nothing is added, and so is its gradient."""
    return fresh(tape_of(x).new(n, x.e), x)


def assigned(whole: Tensor, part: Tensor) -> Tensor:
    """whole[i] = part, in place. Backward copies the gradient of the whole and takes the part's out (CopySlices)."""
    tape, n, e, size, width = tape_of(whole), whole.n, whole.e, part.n, part.e
    y = Tensor(whole.storage, n, e)

    def back(_: Tensor) -> tuple[Tensor, Tensor]:
        rest, piece = tape.new(n, e), tape.new(size, e)
        zeros = tape.new(size, e)
        del zeros
        return rest, piece if width == e else tape.new(size, width)

    return made(y, tape.node((whole, part), back, saves=0, makes=size * e))


@labelled("padded copy")
def pad(x: Tensor, n: int) -> Tensor:
    """A copy with zeros behind each head, `n` elements; backward is a window of the gradient."""
    tape, was = tape_of(x), x.n
    y = tape.new(n, x.e)
    return made(y, tape.node((x,), lambda g: (Tensor(g.storage, was, g.e, view=True),), saves=0))


@labelled("parts")
def split(x: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Views that cover x; backward concatenates their gradients."""
    tape, was, e = tape_of(x), x.n, x.e
    node = tape.node((x,), lambda *_: (tape.new(was, e),), saves=0, slots=len(sizes))
    return [made(Tensor(x.storage, n, e, view=True), node, slot) for slot, n in enumerate(sizes)]


def select(x: Tensor, n: int) -> Tensor:
    """x[..., [i], :]: a copy by index, whose backward adds into zeros of x's size."""
    return fresh(tape_of(x).new(n, x.e), x)


@labelled("gathered rows")
def gather(x: Tensor, n: int, index: Tensor) -> Tensor:
    """x[index], `n` elements: saves the index; backward adds into zeros of x's size."""
    return fresh(tape_of(x).result(n, x.e, x.node is not None), x, index)


@labelled("scaled features")
def resized(x: Tensor, n: int) -> Tensor:
    """torch.nn.functional.interpolate to `n` elements: saves nothing; the gradient is interpolated back."""
    return fresh(tape_of(x).new(n, x.e), x)


@labelled("largest values and their indices")
def topk(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The largest `n` elements and their int64 indices, which are saved."""
    tape, was, e = tape_of(x), x.n, x.e
    y = tape.new(n, e)
    index = tape.new(n, 8)

    def back(_: Tensor, _kept: object = index) -> tuple[Tensor]:
        zeros = tape.new(was, e)
        result = tape.new(was, e)
        del zeros
        return (result,)

    return made(y, tape.node((x,), back)), index


@labelled("maximum of each row")
def maximum(x: Tensor, n: int) -> Tensor:
    """The maximum of each row with its index, which is saved; backward scatters into zeros of x's size."""
    tape = tape_of(x)
    y = tape.new(n, x.e)
    return fresh(y, x, tape.new(n, 8))


@labelled("sum")
def total(x: Tensor, n: int) -> Tensor:
    """A sum to `n` elements: backward expands a view, which the view before it then copies."""
    return fresh(tape_of(x).new(n, x.e), x)


@labelled("embeddings")
def embedding(tape: Tape, rows: int, weight: Parameter, width: int, ids: Tensor) -> Tensor:
    """A table look-up. Backward is dense, with two index copies of 8 bytes a row inside the kernel."""
    y = tape.new(rows * width, weight.e)

    def back(_: Tensor, _kept: object = ids) -> tuple[Tensor]:
        g = tape.new(weight.n, weight.e)
        tape.scratch(16 * rows)
        return (g,)

    return made(y, tape.node((weight,), back))
