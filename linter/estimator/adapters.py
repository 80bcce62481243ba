"""Linear layers with what PEFT and bitsandbytes put around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .matmuls import linear
from .ops import add, contiguous, dropout, leaf, mul, scale, shift, to

if TYPE_CHECKING:
    from collections.abc import Callable

    from .modules import Linear
    from .tape import Tape
    from .tensor import Parameter, Tensor

GEMM_ROWS = 1536
"""Above this many rows bitsandbytes unpacks the whole 4-bit weight and calls a matmul (backends/cuda/ops.py)."""


def project(x: Tensor, layer: Linear, rows: int, base: Callable[[Tensor], None] | None = None) -> Tensor:
    """One Linear: plain, packed, or with a LoRA branch (peft tuners/lora/layer.py and bnb.py).

    `base` is shown what the layer itself makes, as a hook that was there before the adapter is.
    """
    if layer.packed:
        result = integer(x, layer, rows) if layer.packed == "int8" else packed(x, layer, rows)
    else:
        result = linear(x, layer.weight, rows, layer.bias)
    if base is not None:
        base(result)
    if layer.a is None or layer.b is None:
        return result
    tape, e = x.storage.tape, result.e
    if layer.packed:
        result = contiguous(result)
    if not layer.packed or not tape.autocast:
        x = to(x, layer.a.e)
    if layer.dora is not None:
        result = add(result, _dora(x, result, layer, rows))
        return to(result, e)
    branch = scale(linear(linear(dropout(x, layer.dropout), layer.a, rows), layer.b, rows))
    if layer.packed and not tape.autocast:
        branch = to(branch, e)
    result = add(result, branch)
    return to(result, e)


def _dora(x: Tensor, base: Tensor, layer: Linear, rows: int) -> Tensor:
    """DoRA: (m / norm - 1) * base + (m / norm) * branch, the norm over a weight put together in float32.

    Building it takes the product of the low-rank pair, the unpacked weight and their sum at once, four bytes an
    element (peft tuners/lora/dora.py); saved are the base output and the branch.
    """
    assert layer.a is not None
    assert layer.b is not None
    assert layer.dora is not None
    tape = x.storage.tape
    tape.scratch(12 * layer.weight.n)
    branch = linear(linear(dropout(x, layer.dropout), layer.a, rows), layer.b, rows)
    magnitude = leaf(tape, layer.dora)
    return add(mul(base, shift(magnitude)), scale(mul(branch, magnitude)))


def merged(layer: Linear, tape: Tape, e: int) -> Tensor | Parameter:
    """A parameter that is no Linear's weight, as PEFT adapts it: base and low-rank product are put together in full.

    The sum is made anew for every use and saved where it is used (peft tuners/lora/layer.py ParamWrapper).
    """
    weight, a, b = layer.weight, layer.a, layer.b
    if a is None or b is None:
        return weight
    first, second = to(leaf(tape, a), e), to(leaf(tape, b), e)
    sizes = a.n, b.n
    tape.scratch(weight.n * e)
    y = tape.new(weight.n, e)
    y.groups = weight.groups

    def back(_: Tensor, _kept: object = (first, second)) -> tuple[Tensor, Tensor]:
        return tape.new(sizes[0], e), tape.new(sizes[1], e)

    y.node = tape.node((first, second), back)
    return y


def packed(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """bitsandbytes Linear4bit with a 16-bit compute dtype: nothing is saved, backward unpacks the weight.

    Unpacking takes 2 bytes an element and float32 scales for every 64 (autograd/_functions.py MatMul4Bit). Up to 0.42
    the input stays on the function's context, where a non-reentrant checkpoint does not free it. Other packed formats
    that can be trained over are taken for this.
    """
    tape, e, n = x.storage.tape, x.e, layer.weight.n
    inner = to(x, 2)
    width = inner.n
    out = n // (width // rows)
    if tape.packed.always_unpacks and layer.copies > 1:
        tape.scratch(2 * layer.copies * n)
    y = tape.new(rows * out, 2)
    if rows > GEMM_ROWS or tape.packed.always_unpacks:
        tape.scratch(2 * n + n // 64 * 4)

    kept = inner.storage if tape.packed.keeps_input and inner.node is not None else None
    if kept is not None:
        tape.keep(kept)

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor]:
        scales = tape.new(n // 64, 4)
        weight = tape.new(n, 2)
        del scales
        if layer.copies > 1:
            tape.scratch(2 * (layer.copies - 1) * n)
        gradient = tape.new(width, 2)
        del weight
        gradient.view = True
        return (gradient,)

    y.node = tape.node((inner,), back, saves=0)
    result = to(y, e)
    del inner
    return result


def integer(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """bitsandbytes Linear8bitLt (LLM.int8): an int8 copy of x, an int32 product, then x's width.

    The function keeps its input on its context and not among the saved tensors, so that a non-reentrant checkpoint
    does not free it. Backward unpacks the weight (autograd/_functions.py MatMul8bitLt).
    """
    tape, e, n, width = x.storage.tape, x.e, layer.weight.n, x.n
    tape.keep(x.storage)
    half = to(x, 2)
    codes = tape.new(width, 1)
    turned = tape.new(width, 1).storage if tape.packed.transposed else None
    if turned is not None:
        tape.keep(turned)
    product = tape.new(rows * (n // (width // rows)), 4)
    y = tape.new(product.n, e)
    del half, codes, product

    def back(_: Tensor, _kept: object = (x.storage, turned)) -> tuple[Tensor]:
        weight = tape.new(n, e)
        gradient = tape.new(width, e)
        del weight
        gradient.view = True
        return (gradient,)

    y.node = tape.node((x,), back, saves=0)
    return y
