"""Normalisation layers as their modelling code computes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .ops import add, mean, mul, power, rsqrt, shift, to

if TYPE_CHECKING:
    from .tape import Parameter, Tensor


def rms(x: Tensor, weight: Parameter, rows: int) -> Tensor:
    """Llama's RMSNorm: float32 inside, back to x's dtype, times the weight (transformers modeling_llama.py)."""
    e = x.e
    wide = to(x, 4)
    variance = mean(power(wide), rows)
    wide = mul(wide, rsqrt(shift(variance)))
    return mul(to(wide, e), weight)
