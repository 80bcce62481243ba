"""DoRA: what PEFT makes of a Linear's output, its low-rank branch and the magnitudes of its columns.

Local variables here live as long as those of peft's own code.
Source: peft 0.21 tuners/lora/variants.py `DoraLinearVariant.forward`, tuners/lora/dora.py `DoraLinearLayer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tape.labels import labelled
from ..tape.matmuls import linear, linear_wide
from ..tape.ops import add, dropout, leaf, mul, scale, shift, sub, to
from ..tape.tape import tape_of
from ..tape.tensor import Tensor
from .unadapted import unpacked

if TYPE_CHECKING:
    from .modules import Linear


@labelled("weight with its low-rank product")
def dora(x: Tensor, result: Tensor, layer: Linear, rows: int) -> Tensor:
    """(m / norm - 1) * base + (m / norm) * branch, to be added to `result`; x is in the adapter's width.

    The norm is over the weight with the low-rank product added, put together in x's width: that product (an identity
    of in x in elements goes through the pair), the weight unpacked and cast, and the sum. Base and branch are saved for
    the gradient of m. `base` is the layer's own output; with dropout it is made anew from what dropout leaves of x, by
    the cast weight, which is then saved for x's gradient.
    """
    assert layer.a is not None
    assert layer.b is not None
    assert layer.dora is not None
    tape, dropped = tape_of(x), layer.dropout
    x = dropout(x, dropped)
    pair = _pair(x, layer, rows)
    weight = _weight(x, layer)
    tape.scratch(2 * x.e * layer.weight.n)
    branch = linear(linear(x, layer.a, rows), layer.b, rows)
    if not dropped:
        base = result if layer.bias is None else sub(result, leaf(tape, layer.bias))
    elif weight is None:
        base = linear(x, layer.weight, rows)
    else:
        base = linear_wide(x, weight, rows)
    magnitude = leaf(tape, layer.dora)
    term = mul(shift(magnitude), base)
    found = add(term, scale(mul(magnitude, branch)))
    del pair
    return found


@labelled("low-rank product")
def _pair(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """The low-rank product as the pair's answer to an identity matrix, with the graph that nothing asks for."""
    assert layer.a is not None
    assert layer.b is not None
    side = x.n // rows
    identity = tape_of(x).new(side * side, layer.a.e)
    found = linear(linear(identity, layer.a, side), layer.b, side)
    del identity
    return to(found, x.e)


def _weight(x: Tensor, layer: Linear) -> Tensor | None:
    """The weight in x's width; None where it is the parameter itself. Packed ones come out in 16 bits first."""
    tape, n = tape_of(x), layer.weight.n
    if not layer.packed:
        return None if layer.weight.e == x.e else tape.new(n, x.e)
    return to(unpacked(tape, n), x.e)
