"""Linear layers without an adapter: plain, or packed by bitsandbytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tape.backward import made
from ..tape.labels import labelled
from ..tape.matmuls import linear
from ..tape.ops import add, to
from ..tape.tape import tape_of

if TYPE_CHECKING:
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor
    from .modules import Linear

GEMM_ROWS = 1536
"""Above this many rows bitsandbytes unpacks the whole 4-bit weight and calls a matmul (backends/cuda/ops.py)."""


def product(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """The Linear without its adapter: plain or packed."""
    if layer.packed:
        return integer(x, layer, rows) if layer.packed == "int8" else packed(x, layer, rows)
    if layer.apart and layer.bias is not None:
        return add(linear(x, layer.weight, rows), layer.bias)
    return linear(x, layer.weight, rows, layer.bias)


@labelled("output")
def packed(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """bitsandbytes Linear4bit with a 16-bit compute dtype: nothing is saved, backward unpacks the weight.

    Unpacking takes 2 bytes an element and float32 scales for every 64 (autograd/_functions.py MatMul4Bit). Up to 0.42
    the input stays on the function's context, where a non-reentrant checkpoint does not free it. Other packed formats
    that can be trained over are taken for this, but that they keep no input (release.packed).
    """
    tape, e, n = tape_of(x), x.e, layer.weight.n
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

    def back(_: Tensor) -> tuple[Tensor]:
        weight = unpacked(tape, n)
        if layer.copies > 1:
            tape.scratch(2 * (layer.copies - 1) * n)
        gradient = tape.new(width, 2)
        del weight
        gradient.view = True
        return (gradient,)

    y.node = tape.node((inner,), back, saves=0, makes=2 * width)
    result = to(y, e)
    del inner
    return result


@labelled("unpacked weight")
def unpacked(tape: Tape, n: int) -> Tensor:
    """A weight of 4 bits in 16: two bytes an element, made beside float32 scales for every 64 (`dequantize_4bit`)."""
    scales = tape.new(n // 64, 4)
    weight = tape.new(n, 2)
    del scales
    return weight


@labelled("int8 product")
def integer(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """bitsandbytes Linear8bitLt (LLM.int8): an int8 copy of x, an int32 product, a float16 one, then x's width.

    What is not float16 becomes it first; outliers are looked for in the absolute values, 2 bytes an element and one for
    the mask (backends/cuda/ops.py 0.50.2 `int8_vectorwise_quant`, `int8_mm_dequant`). The function keeps its input on
    its context and not among the saved tensors. Backward unpacks the weight (autograd/_functions.py MatMul8bitLt).
    """
    tape, e, n, width = tape_of(x), x.e, layer.weight.n, x.n
    if x.node is not None:
        tape.keep(x.storage)
    same = e == 2 and not tape.packed.halved
    half = x if same else tape.new(width, 2)
    codes = tape.new(width, 1)
    tape.scratch(3 * width)
    turned = tape.new(width, 1).storage if tape.packed.transposed else None
    if turned is not None and x.node is not None:
        tape.keep(turned)
    del half, turned
    product = tape.new(rows * (n // (width // rows)), 4)
    y = tape.new(product.n, 2)
    y = y if same else tape.new(product.n, e)
    del codes, product

    def back(_: Tensor) -> tuple[Tensor]:
        weight = tape.new(n, e)
        gradient = tape.new(width, e)
        del weight
        gradient.view = True
        return (gradient,)

    return made(y, tape.node((x,), back, saves=0, makes=e * width))
