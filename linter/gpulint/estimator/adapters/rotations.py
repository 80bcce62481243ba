"""Adapters that rotate a module's input or weight: OFT, BOFT, HRA (peft 0.21.2, tuners/*/layer.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...models.adapter_parts import rotation_blocks
from ...models.adapter_types import number, option
from ..tape.backward import made
from ..tape.labels import labelled
from ..tape.matmuls import linear_wide, matmul
from ..tape.matmuls import product as multiplied
from ..tape.ops import copied, leaf, mul, scale, to
from ..tape.tape import tape_of
from ..tape.tensor import Tensor
from .deltas import combined
from .unadapted import product

if TYPE_CHECKING:
    from ...job.job import Adapter
    from ..tape.tape import Tape
    from ..tape.tensor import Parameter
    from .modules import Linear


def oft(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """The input, in float32, times a block diagonal rotation; a copy in the input's width goes on.

    The Cayley transform of skew-symmetric blocks is a Neumann series of `num_cayley_neumann_terms`, or solved.
    """
    e = x.e
    wide = to(x, layer.parts["oft_R"].e)
    rotation = _cayley_of_triangles(tape_of(x), layer, x.n // rows)
    turned = _batched(wide, rotation)
    del wide, rotation
    turned = copied(turned)
    turned = to(turned, e)
    return product(turned, layer, rows)


def _cayley_of_triangles(tape: Tape, layer: Linear, inputs: int) -> Tensor:
    weight = layer.parts["oft_R"]
    blocks, size = rotation_blocks(layer.settings, inputs, layer.settings.r)
    shared = bool(option(layer.settings, "block_share"))
    n = (1 if shared else blocks) * size * size
    result = cayley(tape, layer.settings, weight, n, weight.e)
    return combined(tape, (result,), blocks * size * size, weight.e) if shared else result


def cayley(tape: Tape, adapter: Adapter, triangles: Parameter, n: int, e: int) -> Tensor:
    """The rotation, `n` elements of `e` bytes, that a Cayley transform makes of skew-symmetric blocks' triangles."""
    upper = combined(tape, (triangles,), n, e)
    skew = combined(tape, (upper,), n, e, behind=e)
    del upper
    if option(adapter, "use_cayley_neumann"):
        return series(tape, skew, number(adapter, "num_cayley_neumann_terms"))
    return solved(skew)


@labelled("sum of powers")
def series(tape: Tape, skew: Tensor, terms: int) -> Tensor:
    """1 + 2 Q + 2 Q^2 ... + Q^(terms - 1): every power is kept for the next one's gradient; sums are in place."""
    total = tape.new(skew.n, skew.e)
    if terms < 2:
        return total
    total = _summed(total, skew)
    if terms < 3:
        return total
    power = skew
    for _ in range(2, terms):
        power = matmul(power, skew, skew.n)
        total = _summed(total, power)
    return total


def _summed(total: Tensor, term: Tensor) -> Tensor:
    """total += 2 term: the term's gradient is a new tensor."""
    tape, n, e = tape_of(total), term.n, term.e
    y = Tensor(total.storage, n, e, view=True)
    return made(y, tape.node((total, term), lambda g: (g, tape.new(n, e)), saves=0, makes=n * e))


def solved(skew: Tensor) -> Tensor:
    """solve(1 + Q, 1 - Q): saves the factors, the pivots aside, and the result."""
    tape, n, e = tape_of(skew), skew.n, skew.e
    first, second = add_identity(skew), add_identity(skew)
    factors = tape.new(n, e)
    y = tape.new(n, e)

    def back(_: Tensor, _kept: object = (first.storage, factors.storage, y.storage)) -> tuple[Tensor, Tensor]:
        right = tape.new(n, e)
        left = tape.new(n, e)
        tape.scratch(e * n)
        return left, right

    return made(y, tape.node((first, second), back))


def add_identity(x: Tensor) -> Tensor:
    """1 + x or 1 - x."""
    return scale(x)


def _batched(x: Tensor, blocks: Tensor) -> Tensor:
    """A product of x with a block diagonal matrix: both are saved."""
    tape = tape_of(x)
    e = tape.autocast or x.e
    inner, right = to(x, e), to(blocks, e)
    return matmul(inner, right, inner.n)


def boft(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """The input times a butterfly rotation, put together as a whole matrix of inputs; outputs are scaled."""
    tape, parts = tape_of(x), layer.parts
    inputs, e = x.n // rows, x.e
    square = inputs * inputs
    identity = tape.new(square, e)
    skew = combined(tape, (parts["boft_R"],), parts["boft_R"].n, 4, ahead=4, behind=8)
    turned = solved(skew)
    blocks = to(combined(tape, (turned,), square, 4), e)
    permutation = Tensor(tape.nothing, square, 4) if e == 4 else tape.new(square, e)
    del skew, turned
    inner = multiplied(blocks, permutation, square)
    outer = multiplied(inner, permutation, square)
    del inner
    rotation = to(multiplied(outer, identity, square), e)
    factor = mul(leaf(tape, parts["boft_s"]), Tensor(tape.nothing, parts["boft_s"].n, e))
    del blocks
    inner = linear_wide(x, rotation, rows)
    result = product(inner, layer, rows)
    result = mul(result, factor)
    return to(result, e)


def hra(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """The weight times r Householder reflections, one after the other on a whole matrix of the inputs."""
    tape, u, e = tape_of(x), layer.parts["hra_u"], x.e
    inputs = x.n // rows
    square, rank = inputs * inputs, u.n // inputs
    unit = combined(tape, (u,), u.n, u.e, behind=2 * u.e)
    whole = tape.new(square, u.e)
    matrix = tape.new(square, u.e)
    for _ in range(rank):
        matrix = _reflected(matrix, unit, inputs)
    rotation = multiplied(whole, matrix, square)
    del whole, matrix, unit
    same = u.e == layer.weight.e
    base = Tensor(tape.nothing, layer.weight.n, u.e) if same else tape.new(layer.weight.n, u.e)
    weight = multiplied(base, rotation, layer.weight.n)
    return to(linear_wide(to(x, u.e), weight, rows), e)


def _reflected(matrix: Tensor, unit: Tensor, inputs: int) -> Tensor:
    """matrix - 2 matrix u u': the doubled matrix is saved, and made again for its gradient."""
    tape, n = tape_of(matrix), matrix.n
    e = matrix.e
    column = combined(tape, (unit,), inputs, e)
    doubled = scale(matrix)
    first = multiplied(doubled, column, inputs)
    del doubled
    outer = multiplied(first, column, n)
    y = tape.new(n, e)
    return made(y, tape.node((matrix, outer), lambda g: (g, tape.new(n, e)), saves=0, makes=n * e))
