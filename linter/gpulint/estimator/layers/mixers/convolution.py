"""Short causal convolutions over the sequence, one filter a channel (torch.nn.functional.conv1d)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...adapters.linear import project
from ...tape.backward import made
from ...tape.indexing import split, window
from ...tape.labels import labelled
from ...tape.ops import leaf, mul, needs_gradient, to, unpadded
from ...tape.tape import tape_of
from ..activation import activation

if TYPE_CHECKING:
    from ...adapters.modules import Linear, Modules
    from ...tape.tensor import Parameter, Tensor
    from ..dims import LayerDims

PART = "convolution"


def short_convolution(x: Tensor, modules: Modules, dims: LayerDims) -> Tensor:
    """LFM2: one projection to B, C and x; C * conv(B * x); the last projection."""
    first, convolution, last = (
        modules.require("in_proj"),
        modules.require("conv.conv"),
        modules.require("conv.out_proj"),
    )
    x = unpadded(x, dims.rows, dims.job.padded)
    n = dims.rows * dims.hidden
    b, c, h = split(project(x, first, dims.rows), (n, n, n))
    h = mul(b, h)
    h = causal_convolution(h, convolution, dims, act="")
    return project(mul(c, h), last, dims.rows)


def causal_convolution(x: Tensor, module: Linear, dims: LayerDims, act: str = "silu", wide: bool = True) -> Tensor:
    """act(conv(x)), cut to the length of x; the filter's overhang of `kernel - 1` positions is made and cut off.

    `wide` casts x to the width of the filter first, which autocast undoes (transformers `causal_conv1d_fn`).
    """
    kernel = module.weight.n // module.out
    longer = dims.batch * module.out * (dims.length + kernel - 1)
    out = convolve(to(x, module.weight.e) if wide else x, module, longer)
    out = window(out, dims.rows * module.out)
    return activation(act)(out) if act else out


def convolve(x: Tensor, module: Linear, n: int) -> Tensor:
    """conv1d of `n` output elements with a module's own filter."""
    return convolved(x, leaf(tape_of(x), module.weight), module.bias, n)


@labelled("output")
def convolved(x: Tensor, weight: Tensor, added: Parameter | None, n: int) -> Tensor:
    """conv1d of `n` output elements: saves x and the filter, whichever of them wants a gradient."""
    tape = tape_of(x)
    e = tape.autocast or x.e
    inner, weight = to(x, e), to(weight, e)
    bias = to(leaf(tape, added), e) if added is not None else None
    y = tape.new(n, e)
    needed, xn = inner.node is not None, inner.n
    sizes = [p.n if p is not None and needs_gradient(p) else 0 for p in (weight, bias)]
    kept = (inner.storage, weight)

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor | None, ...]:
        return (tape.new(xn, e) if needed else None, *(tape.new(size, e) if size else None for size in sizes))

    return made(y, tape.node((inner, weight, bias), back))
