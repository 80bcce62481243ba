"""Adapters that put a whole weight together for every use (peft 0.21.2, tuners/*/layer.py).

What is saved is the weight, 4 bytes an element, and a float32 copy of the input, beside what the putting together
saves itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tape.backward import made
from ..tape.labels import labelled
from ..tape.matmuls import linear_wide
from ..tape.ops import add, copied, dropout, leaf, mul, scale, sub, to
from ..tape.tape import tape_of
from ..tape.tensor import Parameter, Tensor
from .unadapted import product

if TYPE_CHECKING:
    from ..tape.tape import Tape
    from ..tape.tensor import Operand
    from .modules import Linear


def loha(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """The elementwise product of two low-rank products, in an autograd function of its own (`HadaWeight`)."""
    result = product(x, layer, rows)
    pairs = tuple(layer.parts[f"hada_w{n}_{side}"] for n in (1, 2) for side in "ab")
    tape = tape_of(x)
    e = tape.autocast or layer.width
    delta = combined(tape, pairs, layer.weight.n, e, ahead=3 * e, behind=12 + e)
    return _added(x, result, delta, rows)


def lokr(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """The Kronecker product of two factors, each whole or a low-rank product, times a number."""
    tape, parts = tape_of(x), layer.parts
    result = product(x, layer, rows)
    factors = [_factor(tape, parts, name, layer.settings.r) for name in ("lokr_w1", "lokr_w2")]
    n = layer.weight.n
    e = max(factor.e for factor in factors)
    whole = combined(tape, tuple(factors), n, e, saves=tuple(factors), behind=e)
    delta = scale(whole)
    del whole, factors
    return _added(x, result, delta, rows)


def _factor(tape: Tape, parts: dict[str, Parameter], name: str, rank: int) -> Tensor:
    whole = parts.get(name)
    if whole is not None:
        return leaf(tape, whole)
    first, second = parts[f"{name}_a"], parts[f"{name}_b"]
    return combined(tape, (first, second), first.n // rank * (second.n // rank), tape.autocast or first.e)


def fourierft(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """Few coefficients put into zeros, transformed back: complex numbers of 8 bytes while it is made."""
    tape, n = tape_of(x), layer.weight.n
    result = product(x, layer, rows)
    spectrum = layer.parts["fourierft_spectrum"]
    dense = combined(tape, (spectrum,), n, 4, saves=(tape.new(2 * spectrum.n, 8),))
    complex_ = combined(tape, (dense,), n, 8, ahead=16, behind=8)
    delta = to(combined(tape, (complex_,), n, 4, behind=4), spectrum.e)
    del dense, complex_
    return _added(x, result, delta, rows)


def hira(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """The weight times a low-rank product, element by element; the product and the sum of both are kept."""
    tape = tape_of(x)
    result = product(x, layer, rows)
    pair = tuple(layer.parts[f"hira_{side}"] for side in "AB")
    whole = combined(tape, pair, layer.weight.n, tape.autocast or layer.width)
    wide = to(x, layer.width)
    delta = mul(whole, layer.weight)
    branch = linear_wide(dropout(wide, layer.dropout), delta, rows)
    del delta
    y = to(add(result, branch), result.e)
    del whole
    return y


def glora(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """W + W A + B in the weight's width, whose product stands for the module's own beside it."""
    tape, weight, parts = tape_of(x), layer.weight, layer.parts
    base = product(x, layer, rows)
    paths = [to(_path(tape, parts, name, weight.n), weight.e) for name in ("glora_A", "glora_B")]
    scaled = combined(tape, (paths[0],), weight.n, weight.e)
    first = add(Tensor(tape.nothing, weight.n, weight.e), scaled)
    del scaled
    whole = add(first, paths[1])
    del first
    adapted = linear_wide(x, whole, rows)
    result = add(base, adapted)
    return sub(result, scale(base))


def _path(tape: Tape, parts: dict[str, Parameter], name: str, n: int) -> Tensor:
    """A low-rank product of the weight's size, or what stands for one."""
    whole = parts.get(name)
    if whole is not None:
        return leaf(tape, whole)
    return combined(tape, (parts[f"{name}d"], parts[f"{name}u"]), n, tape.autocast or parts[f"{name}d"].e)


def shira(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """A copy of the weight with a sparse tensor added, in the weight's own width; the input is saved whole.

    The gradient of the copy is made in full before its few elements are taken out.
    """
    tape, weights, n = tape_of(x), layer.parts["shira_weight"], layer.weight.n
    changed = combined(tape, (scale(leaf(tape, weights)),), n, layer.weight.e)
    return linear_wide(x, changed, rows)


def bat(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """MiSS's `bat`: W (B + 1) + B on blocks of the weight, in float32."""
    tape, block, n = tape_of(x), layer.parts["miss_block"], layer.weight.n
    e = x.e
    own = tape.new(n, layer.weight.e)
    wide = tape.new(n if block.e > own.e else 0, block.e)
    repeated = combined(tape, (block,), n, block.e)
    laid = tape.new(n, block.e)
    made = combined(tape, (repeated,), n, block.e, saves=(laid,))
    del repeated, laid
    made = combined(tape, (made, block), n, block.e)
    made = copied(made)
    weight = add(Tensor(own.storage, n, own.e), made)
    del own, made, wide
    return to(linear_wide(to(x, weight.e), weight, rows), e)


def _added(x: Tensor, result: Tensor, delta: Tensor, rows: int) -> Tensor:
    wide = to(x, delta.e)
    branch = linear_wide(wide, delta, rows)
    del delta, wide
    return to(add(result, branch), result.e)


@labelled("weight put together")
def combined(
    tape: Tape,
    inputs: tuple[Operand, ...],
    n: int,
    e: int,
    saves: tuple[Tensor, ...] = (),
    ahead: int = 0,
    behind: int = 0,
) -> Tensor:
    """A tensor of `n` elements made of others; `ahead` and `behind` are bytes an element that making it and its
    gradients take besides, `saves` is what backward needs beside parameters.
    """
    tape.scratch(ahead * n)
    y = tape.new(n, e)
    sizes = tuple((x.n, x.e) if x is not None else (0, 0) for x in inputs)
    kept = tuple(x.storage for x in saves)

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor, ...]:
        tape.scratch(behind * n)
        return tuple(tape.new(size, width) for size, width in sizes)

    return made(y, tape.node(inputs, back))
