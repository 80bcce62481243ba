"""Matrix products on the tape: which operand each saves, and the gradients it makes.

A product saves x for the gradient of the weight and the weight for that of x; under autocast the operands are cast
first (torch 2.13: derivatives.yaml, autocast_mode.cpp).
"""

from __future__ import annotations

from .backward import made
from .labels import labelled
from .ops import add_to, needs_gradient, relayout, to
from .tape import tape_of
from .tensor import Parameter, Tensor


@labelled("product")
def matmul(a: Tensor, b: Tensor, n: int, kept_by_policy: bool = False) -> Tensor:
    """A batched product of two activations, `n` elements: saves both; backward makes one gradient of each.

    `kept_by_policy` where a checkpoint that selects operators keeps it (torch._functorch.partitioners
    `get_default_op_list`: bmm is one of the `compute_intensive_ops`).
    """
    tape, an, ae, bn = tape_of(a), a.n, a.e, b.n
    y = tape.kernel_output(n, ae) if kept_by_policy else tape.new(n, ae)
    kept = (a.storage if b.node is not None else None, b.storage if a.node is not None else None)
    ga, gb = a.node is not None, b.node is not None

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor | None, Tensor | None]:
        right = tape.new(bn, ae) if gb else None
        return tape.new(an, ae) if ga else None, right

    return made(y, tape.node((a, b), back))


def product(a: Tensor, b: Tensor, n: int) -> Tensor:
    """torch.matmul of two activations in autocast's width, `n` elements."""
    e = tape_of(a).autocast
    return matmul(to(a, e), to(b, e), n) if e else matmul(a, b, n)


def einsum(
    a: Tensor, b: Tensor, n: int, copy_a: bool = True, copy_b: bool = True, copied_gradient: bool = False
) -> Tensor:
    """torch.einsum of two operands as one batched product: operands are laid out for it, gradients come as views.

    `copied_gradient` where the result lies in another order than its gradient (aten/src/ATen/native/Linear.cpp).
    """
    left, right = arranged(a) if copy_a else a, arranged(b) if copy_b else b
    y = product(left, right, n)
    return relayout(y) if copied_gradient else y


@labelled("copy laid out for a product")
def arranged(x: Tensor) -> Tensor:
    """A copy in another layout whose gradient is a view of the copy's."""
    tape, n, e = tape_of(x), x.n, x.e
    y = tape.new(n, e)
    return made(y, tape.node((x,), lambda g: (Tensor(g.storage, n, e, view=True),), saves=0))


def solve(system: Tensor, b: Tensor) -> Tensor:
    """torch.linalg.solve_triangular: saves the system and the solution; backward solves, multiplies, negates, cuts."""
    tape, n, e, sn = tape_of(system), b.n, b.e, system.n
    y = tape.new(n, e)

    def back(_: Tensor, _kept: object = (system.storage, y.storage)) -> tuple[Tensor, Tensor]:
        right = tape.new(n, e)
        left = tape.new(sn, e)
        left = tape.new(sn, e)
        left = tape.new(sn, e)
        return left, right

    return made(y, tape.node((system, b), back))


@labelled("output")
def linear(x: Tensor, weight: Parameter, rows: int, bias: Parameter | None = None) -> Tensor:
    """x @ weight.T: x is saved for the weight's gradient, the weight for x's.

    Under autocast the operands are cast first, the weight before x. Backward makes the weight's gradient, then x's
    (a view of a matrix, so that it is never added to in place).
    """
    tape = tape_of(x)
    e = tape.autocast or x.e
    w = tape.cast(weight, e)
    b = None if bias is None else tape.cast(bias, e)
    inner = to(x, e)
    out = weight.n // _columns(x.n, rows)
    needs_x, xn = x.node is not None, x.n
    wn, trainable = weight.n, weight.trainable
    y = Tensor(tape.nothing, rows * out, e) if tape.ends(needs_x or trainable) else tape.product(rows * out, e)
    bn = bias.n if bias is not None and bias.trainable else 0
    shard = inner.shard
    kept = ((shard or tape.operand(inner)) if trainable else None, w if needs_x else None)

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor | None, ...]:
        again = tape.new(xn, e) if trainable and shard is not None else None
        gw = tape.new(wn, e) if trainable else None
        del again
        gx = tape.new(xn, e) if needs_x else None
        if gx is not None:
            gx.view = True
        if gw is not None:
            gw.view = True
        return gx, gw, tape.new(bn, e) if bn else None

    return made(y, tape.node((inner, w, b), back))


def expert_matmul(x: Tensor, weight: Parameter, rows: int) -> Tensor:
    """torch.bmm of every expert's rows with its matrix; autocast narrows both operands."""
    tape = tape_of(x)
    e = tape.autocast or x.e
    w, inner = tape.cast(weight, e), to(x, e)
    n, wn, trainable, needed = inner.n, weight.n, weight.trainable, inner.node is not None
    y = tape.new(rows * (wn // (n // (rows * weight.groups))), e)
    kept = (tape.operand(inner) if trainable else None, w if needed else None)

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor | None, ...]:
        gw = tape.new(wn, e) if trainable else None
        return (tape.new(n, e) if needed else None, gw)

    return made(y, tape.node((inner, w), back))


@labelled("output")
def linear_wide(x: Tensor, weight: Tensor, rows: int) -> Tensor:
    """A matmul with a weight that is itself a result; autocast narrows both operands."""
    tape = tape_of(x)
    e = tape.autocast or x.e
    w, inner = to(weight, e), to(x, e)
    n, wn = inner.n, w.n
    y = tape.new(rows * (wn // _columns(n, rows)), e)
    gx, gw = inner.node is not None, w.node is not None
    kept = (inner.storage if gw else None, w.storage if gx else None)

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor | None, Tensor | None]:
        right = tape.new(wn, e) if gw else None
        left = tape.new(n, e) if gx else None
        if left is not None:
            left.view = True
        return left, right

    return made(y, tape.node((inner, w), back))


@labelled("output")
def grouped_linear(x: Tensor, weight: Tensor | Parameter, rows: int, bias: Tensor | None = None) -> Tensor:
    """One matmul over rows grouped by expert, in the weight's width (torch.nn.functional.grouped_mm).

    The bias, gathered for every row, is added in place.
    """
    tape, e = tape_of(x), weight.e
    inner = to(x, e)
    n, wn, trainable, needed = inner.n, weight.n, needs_gradient(weight), inner.node is not None
    y = tape.new(rows * (wn // weight.groups // _columns(n, rows)), e)
    kept = (tape.operand(inner) if trainable else None, weight if needed else None)

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor | None, ...]:
        gw = tape.new(wn, e) if trainable else None
        return (tape.new(n, e) if needed else None, gw)

    y = made(y, tape.node((inner, weight), back))
    return y if bias is None else add_to(y, bias)


def _columns(n: int, rows: int) -> int:
    """Columns of `n` elements in `rows` rows; 1 where more ranks share a dimension than it has."""
    return max(1, n // rows)
