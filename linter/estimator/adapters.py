"""Linear layers with what PEFT and bitsandbytes put around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .ops import add, contiguous, dropout, linear, scale, to

if TYPE_CHECKING:
    from .modules import Linear
    from .tape import Tensor

GEMM_ROWS = 1536
"""Above this many rows bitsandbytes unpacks the whole 4-bit weight and calls a matmul (backends/cuda/ops.py)."""


def project(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """One Linear: plain, packed in 4 bits, or with a LoRA branch (peft tuners/lora/layer.py and bnb.py)."""
    result = packed(x, layer, rows) if layer.packed else linear(x, layer.weight, rows, layer.bias)
    a, b = layer.a, layer.b
    if a is None or b is None:
        return result
    tape = x.storage.tape
    e = result.e
    if layer.packed:
        result = contiguous(result)
    if not layer.packed or not tape.autocast:
        x = to(x, a.e)
    branch = scale(linear(linear(dropout(x, layer.dropout), a, rows), b, rows))
    if layer.packed and not tape.autocast:
        branch = to(branch, e)
    result = add(result, branch)
    return to(result, e)


def packed(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """bitsandbytes Linear4bit with a 16-bit compute dtype: nothing is saved, backward unpacks the weight.

    Unpacking takes 2 bytes an element and float32 scales for every 64 (autograd/_functions.py MatMul4Bit).
    """
    tape, e, n = x.storage.tape, x.e, layer.weight.n
    inner = to(x, 2)
    width = inner.n
    out = n // (width // rows)
    y = tape.new(rows * out, 2)
    if rows > GEMM_ROWS:
        tape.scratch(2 * n + n // 64 * 4)

    def back(_: Tensor) -> tuple[Tensor]:
        scales = tape.new(n // 64, 4)
        weight = tape.new(n, 2)
        del scales
        gradient = tape.new(width, 2)
        del weight
        gradient.view = True
        return (gradient,)

    y.node = tape.node((inner,), back, saves=0)
    del inner
    return to(y, e)
