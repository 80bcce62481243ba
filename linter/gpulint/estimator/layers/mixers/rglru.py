"""Real-gated linear recurrent unit: the recurrent blocks of RecurrentGemma (Griffin), token by token.

What runs is the loop of transformers (modeling_recurrent_gemma.py 5.23), which has no kernels: two gates, a decay and
a scan in float32 whose every step is kept for backward, 8 bytes a channel and token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...adapters.linear import project
from ...tape.backward import made
from ...tape.indexing import assigned, window
from ...tape.ops import (
    add,
    contiguous,
    leaf,
    mul,
    needs_gradient,
    scale,
    shift,
    to,
    unary,
)
from ...tape.tape import tape_of
from ..activation import activation
from .convolution import causal_convolution
from .mamba_scan import turns_of

if TYPE_CHECKING:
    from ...adapters.modules import Linear, Modules
    from ...tape.tensor import Tensor
    from ..dims import LayerDims

PART = "recurrent unit"


def recurrent_unit(x: Tensor, modules: Modules, dims: LayerDims) -> Tensor:
    """act(one projection) times the recurrence over another, convolved one; the last projection."""
    rows = dims.rows
    first, second, last = (modules.require(name) for name in ("linear_y", "linear_x", "linear_out"))
    y = activation(dims.activation)(project(x, first, rows))
    h = project(x, second, rows)
    h = causal_convolution(h, modules.require("conv_1d"), dims, act="", wide=False)
    h = _recurrence(h, modules, dims)
    return project(mul(h, y), last, rows)


def _recurrence(x: Tensor, modules: Modules, dims: LayerDims) -> Tensor:
    """h = a h + sqrt(1 - a^2) (i x), with a = exp(-8 r softplus(parameter)) and sigmoid gates i and r of x."""
    tape, n = tape_of(x), x.n
    laid = contiguous(x) if dims.batch > 1 else x
    taken = _gate(laid, modules, "input")
    gate = _gate(laid, modules, "recurrent")
    rate = leaf(tape, modules.require("recurrent_param").weight)
    rate = unary(to(rate, 4) if tape.autocast else rate)
    exponent = mul(scale(gate), rate)
    gate = unary(exponent, save_input=False, save_output=True)
    square = unary(scale(exponent), save_input=False, save_output=True)
    gated = mul(x, taken)
    kept = _root(scale(square))
    kept = shift(scale(kept))
    h = mul(gated, to(kept, x.e))
    gate = scale(gate)
    out = tape.new(n, h.e)
    turns = turns_of(dims)
    part = n // turns
    state = tape.new(n // dims.length, 4)
    for _ in range(turns):
        state = mul(to(window(gate, part), 4), state)
        state = add(state, to(window(h, part), 4))
        out = assigned(out, to(state, h.e))
    tape.pin(state)
    del laid, taken, exponent, square, gated, kept
    return out


def _gate(x: Tensor, modules: Modules, name: str) -> Tensor:
    """sigmoid of a product with one small matrix for each head (torch.baddbmm), laid out as x is."""
    result = _heads(x, modules.require(f"{name}_gate_weight"), modules.require(f"{name}_gate_bias"))
    return unary(contiguous(result), save_input=False, save_output=True)


def _heads(x: Tensor, weight: Linear, bias: Linear) -> Tensor:
    tape = tape_of(x)
    e = tape.autocast or x.e
    w, b, inner = tape.cast(weight.weight, e), tape.cast(bias.weight, e), to(x, e)
    n, wn, bn = inner.n, weight.weight.n, bias.weight.n
    trained, needed = needs_gradient(weight.weight), inner.node is not None
    y = tape.new(n, e)
    kept = (inner.storage if trained else None, w if needed else None)

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor | None, ...]:
        return (
            tape.new(n, e) if needed else None,
            tape.new(wn, e) if trained else None,
            tape.new(bn, e) if trained else None,
        )

    return made(y, tape.node((inner, w, b), back))


def _root(x: Tensor) -> Tensor:
    """A square root that saves its input; its backward clips four times it, takes the root and divides."""
    tape, n, e = tape_of(x), x.n, x.e
    y = tape.new(n, e)

    def back(_: Tensor, _kept: object = x.storage) -> tuple[Tensor]:
        clipped = tape.new(n, e)
        root = tape.new(n, e)
        result = tape.new(n, e)
        del clipped, root
        return (result,)

    return made(y, tape.node((x,), back))
