"""Operations on the tape: what each torch operation allocates, saves and allocates again in backward.

Every function is one torch operation (or one kernel). Saved tensors and the temporaries of the backward formulas are
those of tools/autograd/derivatives.yaml and FunctionsManual.cpp of torch 2.13; results of mixed width are as wide as
the wider operand. `T` in comments is tokens, `h` hidden size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .backward import fresh, made
from .labels import labelled
from .tape import tape_of
from .tensor import Parameter, Tensor, wider

if TYPE_CHECKING:
    from .tape import Tape
    from .tensor import Backward, Operand


def view(x: Tensor) -> Tensor:
    """The same bytes under another shape."""
    return made(Tensor(x.storage, x.n, x.e, view=True), x.node, x.slot)


@labelled("{width} copy")
def to(x: Tensor, e: int) -> Tensor:
    """`x.to(dtype)`: x itself where nothing changes, else a copy; nothing is saved."""
    if x.e == e:
        return x
    y = tape_of(x).new(x.n, e, x.storage.logits)
    y.heads_first = x.heads_first
    return fresh(y, x)


@labelled("contiguous copy")
def contiguous(x: Tensor) -> Tensor:
    """A copy in another layout; its gradient is passed through."""
    tape = tape_of(x)
    y = tape.new(x.n, x.e)
    return made(y, tape.node((x,), lambda g: (g,), saves=0))


@labelled("contiguous copy")
def copied(x: Tensor) -> Tensor:
    """A copy in another layout whose gradient is laid out back by a copy too."""
    return fresh(tape_of(x).new(x.n, x.e), x)


def gathered(x: Tensor, n: int) -> Tensor:
    """Sequence parallelism: all ranks' shares of x, `n` elements, saved as x's own; backward scatters the gradient."""
    y = tape_of(x).new(n, x.e)
    y.shard = x.storage
    return fresh(y, x)


def scattered(x: Tensor, n: int) -> Tensor:
    """Sequence parallelism: this rank's share of a sum over ranks; backward gathers the gradient."""
    return fresh(tape_of(x).reduced(n, x.e), x)


@labelled("output")
def relayout(x: Tensor) -> Tensor:
    """A view whose gradient comes back in another layout and is copied."""
    return fresh(Tensor(x.storage, x.n, x.e, view=True), x)


@labelled("sum")
def summed(x: Tensor, n: int) -> Tensor:
    """A sum to `n` elements whose dimension stays; its gradient is an expanded view."""
    tape, was, e = tape_of(x), x.n, x.e
    y = tape.new(n, e)
    return made(y, tape.node((x,), lambda g: (Tensor(g.storage, was, e, view=True),), saves=0))


@labelled("sum")
def add(a: Tensor, b: Tensor | Parameter) -> Tensor:
    """a + b: nothing is saved, both get the gradient itself."""
    tape = tape_of(a)
    y = tape.new(max(a.n, b.n), wider(a.e, b.e))
    return made(y, tape.node((a, b), lambda g: (g, g), saves=0))


@labelled("difference")
def sub(a: Tensor, b: Tensor, n: int = 0) -> Tensor:
    """a - b, of `n` elements where that is more than either has: nothing is saved; b's gradient is a negated copy."""
    tape, n, e = tape_of(a), max(a.n, b.n, n), wider(a.e, b.e)
    y = tape.new(n, e)
    back = (lambda g: (g, tape.new(g.n, g.e))) if b.node is not None else (lambda g: (g, None))
    return made(y, tape.node((a, b), back, saves=0))


@labelled("sum in place")
def add_to(a: Tensor, b: Tensor) -> Tensor:
    """a += b: a's own bytes, both get the gradient itself."""
    tape = tape_of(a)
    return made(Tensor(a.storage, a.n, a.e, view=True), tape.node((a, b), lambda g: (g, g), saves=0))


@labelled("parameter")
def leaf(tape: Tape, weight: Parameter) -> Tensor:
    """A parameter as an operand; its bytes are counted with the weights."""
    return made(Tensor(tape.nothing, weight.n, weight.e), tape.node((weight,), lambda g: (g,), saves=0))


@labelled("product with a number")
def scale(x: Tensor) -> Tensor:
    """x times or plus a number, or minus x: a new tensor each way."""
    return fresh(tape_of(x).new(x.n, x.e, x.storage.logits), x)


def scaled_in_place(x: Tensor) -> Tensor:
    """x *= a number: x's own bytes, a new gradient."""
    return fresh(Tensor(x.storage, x.n, x.e, view=True), x)


def divided_slice(x: Tensor) -> Tensor:
    """x /= a number through a slice of x. Backward copies the gradient, clones the slice of it and divides that
    (torch/csrc/autograd/functions/tensor.cpp `CopySlices`)."""
    tape, n, e = tape_of(x), x.n, x.e

    def back(_: Tensor) -> tuple[Tensor]:
        whole = tape.new(n, e)
        clone = tape.new(n, e)
        divided = tape.new(n, e)
        del clone, divided
        return (whole,)

    return made(Tensor(x.storage, n, e, view=True), tape.node((x,), back, saves=0, makes=n * e))


def multiplied(x: Tensor) -> Tensor:
    """x times a number that is a tensor, in place."""
    return fresh(Tensor(x.storage, x.n, x.e, view=True), x, ())


@labelled("sum with a number")
def shift(x: Tensor) -> Tensor:
    """x plus a number: the gradient passes through."""
    tape = tape_of(x)
    y = tape.new(x.n, x.e)
    return made(y, tape.node((x,), lambda g: (g,), saves=0))


@labelled("product")
def mul(a: Tensor, b: Tensor | Parameter) -> Tensor:
    """a * b, broadcast: each operand is saved if the other needs a gradient."""
    tape = tape_of(a)
    for_a = a.node is not None
    for_b = b.trainable if isinstance(b, Parameter) else b.node is not None
    y = tape.result(max(a.n, b.n), wider(a.e, b.e), for_a or for_b)
    return made(y, tape.node((a, b), _mul_backward(a if for_b else None, b if for_a else None, y.n, y.e)))


@labelled("product of all pairs")
def spread_mul(a: Tensor, b: Tensor, n: int) -> Tensor:
    """a * b broadcast to `n` elements, more than either has: each operand is saved if the other needs a gradient."""
    tape, e = tape_of(a), wider(a.e, b.e)
    y = tape.result(n, e, a.node is not None or b.node is not None)
    return made(y, tape.node((a, b), _mul_backward(a if b.node else None, b if a.node else None, n, e)))


@labelled("choice")
def where(x: Tensor, other: Tensor) -> Tensor:
    """torch.where over a comparison of x, x where it holds: saves the condition of one byte an element."""
    tape, n, e = tape_of(x), x.n, x.e
    condition = tape.new(n, 1)
    y = tape.new(n, e)
    return made(y, tape.node((x, other), lambda _, _kept=condition: (tape.new(n, e), tape.new(n, e))))


def unpadded(x: Tensor, rows: int, padded: bool) -> Tensor:
    """x with the rows of padding put to zero: times the batch's own mask, counted with the inputs."""
    return mul(x, Tensor(tape_of(x).nothing, rows, x.e)) if padded else x


def _mul_backward(a: Tensor | None, b: Tensor | Parameter | None, n: int, e: int) -> Backward:
    def back(g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        tape = tape_of(g)
        return (None if b is None else tape.new(n, e), None if a is None else tape.new(n, e))

    return back


@labelled("masked copy")
def masked(x: Tensor, condition: int) -> Tensor:
    """torch.where of x and a number: saves a condition of so many bytes; backward is a where of the gradient."""
    tape, n, e = tape_of(x), x.n, x.e
    kept = tape.new(condition, 1)
    y = tape.new(n, e)
    return fresh(y, x, kept)


@labelled("activation")
def unary(x: Tensor, save_input: bool = True, save_output: bool = False, logits: bool = False) -> Tensor:
    """A fused pointwise kernel (silu, gelu, relu, tanh, sigmoid, rsqrt ...) with a fused backward."""
    tape, n, e = tape_of(x), x.n, x.e
    y = tape.new(n, e, logits)
    kept = (x.storage if save_input else None, y.storage if save_output else None)
    return fresh(y, x, kept)


def exp(x: Tensor) -> Tensor:
    """exp: saves its result."""
    return unary(x, save_input=False, save_output=True)


@labelled("square")
def power(x: Tensor) -> Tensor:
    """x.pow(k): backward is g * (k * x.pow(k - 1)), three tensors alive at once."""
    y = tape_of(x).new(x.n, x.e)
    return _with_two_factors(x, y, x.storage)


@labelled("inverse root")
def rsqrt(x: Tensor) -> Tensor:
    """rsqrt: saves its result; backward is -0.5 * g * result.pow(3)."""
    y = tape_of(x).new(x.n, x.e)
    return _with_two_factors(x, y, y.storage)


def _with_two_factors(x: Tensor, y: Tensor, saved: object) -> Tensor:
    """y of x, whose backward makes the gradient of two factors, each a tensor of x's size that dies with it."""
    tape, n, e = tape_of(x), x.n, x.e

    def back(_: Tensor, _saved: object = saved) -> tuple[Tensor]:
        first = tape.new(n, e)
        second = tape.new(n, e)
        result = tape.new(n, e)
        del first, second
        return (result,)

    return made(y, tape.node((x,), back))


@labelled("dropout {dropout}")
def dropout(x: Tensor, p: float) -> Tensor:
    """Fused dropout: saves a mask of one byte per element; x itself when p is 0."""
    if not p:
        return x
    tape, n, e = tape_of(x), x.n, x.e
    y = tape.new(n, e)
    mask = tape.new(n, 1)
    return fresh(y, x, mask)


def needs_gradient(x: Operand) -> bool:
    """Whether an operand gets a gradient."""
    if isinstance(x, Parameter):
        return x.trainable
    return x is not None and x.node is not None


def widened(tape: Tape, weight: Parameter | None, e: int) -> Tensor | Parameter | None:
    """A weight in `e` bytes an element, outside autocast's cache."""
    return weight if weight is None or weight.e == e else to(leaf(tape, weight), e)


@labelled("quotient")
def divided(a: Tensor, b: Tensor) -> Tensor:
    """a / b, broadcast: saves both; b's gradient is -g * ((a / b) / b)."""
    tape, n, e = tape_of(a), a.n, wider(a.e, b.e)
    y = tape.new(n, e)

    def back(_: Tensor, _kept: object = (a.storage, b.storage)) -> tuple[Tensor, Tensor]:
        left = tape.new(n, e)
        inner = tape.new(n, e)
        right = tape.new(n, e)
        del inner
        return left, right

    return made(y, tape.node((a, b), back))


def clamped(x: Tensor) -> Tensor:
    """clamp_, in place: a copy of what x was is saved where it needs a gradient."""
    if x.node is None:
        return x
    tape, n, e = tape_of(x), x.n, x.e
    kept = tape.new(n, e)
    return fresh(Tensor(x.storage, n, e, view=True), x, kept)


def bounded(x: Tensor) -> Tensor:
    """torch.max or torch.minimum of x and a constant: saves x; backward masks the gradient, halved where both are equal
    (derivatives.yaml `maximum`, `minimum`)."""
    tape, n, e = tape_of(x), x.n, x.e
    y = tape.new(n, e)

    def back(_: Tensor, _kept: object = x.storage) -> tuple[Tensor]:
        equal, halved = tape.new(n, 1), tape.new(n, e)
        result = tape.new(n, e)
        del equal, halved
        tape.scratch(n)
        return (result,)

    return made(y, tape.node((x,), back))


@labelled("clamped values")
def clamp(x: Tensor) -> Tensor:
    """clamp: saves its input; backward is a where over a mask of one byte an element."""
    return fresh(tape_of(x).new(x.n, x.e), x, x.storage)
