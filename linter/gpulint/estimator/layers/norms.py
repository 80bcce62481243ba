"""Normalisation layers as their modelling code computes them (transformers 5.23).

x has `rows` vectors. RMSNorm in Python over a 16-bit x saves a float32 copy of x, 4 bytes a row, and, where the
weight is trained, x times its inverse root in x's width; over a float32 x it saves x itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tape.indexing import cat, split
from ..tape.ops import (
    leaf,
    mul,
    power,
    rsqrt,
    shift,
    sub,
    to,
    widened,
)
from ..tape.rows import layer_norm, mean
from ..tape.tape import tape_of
from ..tape.tensor import Parameter
from . import compiled, liger

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..adapters.modules import Linear, Modules
    from ..tape.tensor import Tensor
    from .dims import LayerDims

    Norm = Callable[[Tensor, Linear | None, int], Tensor]


def rms(x: Tensor, module: Linear | None, rows: int) -> Tensor:
    """Llama's: weight * normalised(x in float32).to(dtype of x)."""
    assert module is not None
    e = x.e
    wide = to(x, 4)
    variance = mean(power(wide), rows)
    wide = mul(wide, rsqrt(shift(variance)))
    return mul(to(wide, e), module.weight)


def t5(x: Tensor, module: Linear | None, rows: int) -> Tensor:
    """T5's: x in its own width times the inverse root of its float32 mean square, then to a 16-bit weight's width."""
    assert module is not None
    variance = mean(power(to(x, 4)), rows)
    h = mul(x, rsqrt(shift(variance)))
    return mul(h if module.weight.e == 4 else to(h, module.weight.e), module.weight)


def rms_wide(x: Tensor, module: Linear | None, rows: int) -> Tensor:
    """OLMo-2's and gpt-oss's: the product with the weight in float32, then back."""
    assert module is not None
    e = x.e
    wide = to(x, 4)
    variance = mean(power(wide), rows)
    wide = mul(wide, rsqrt(shift(variance)))
    return to(mul(wide, module.weight), e)


def rms_cast(x: Tensor, module: Linear | None, rows: int) -> Tensor:
    """Helium's and Nemotron-H's: times a float32 copy of the weight, then back."""
    assert module is not None
    wide = to(x, 4)
    variance = mean(power(wide), rows)
    wide = mul(wide, rsqrt(shift(variance)))
    return to(mul(to(leaf(tape_of(x), module.weight), 4), wide), x.e)


def rms_bare(x: Tensor, _module: Linear | None, rows: int) -> Tensor:
    """Without a weight: llama-4's L2 norm of queries and keys, nanochat."""
    wide = to(x, 4)
    wide = mul(wide, rsqrt(shift(mean(power(wide), rows))))
    return to(wide, x.e)


def rms_nested(x: Tensor, module: Linear | None, rows: int) -> Tensor:
    """Llama 4's: normalised(x in float32) in x's width, times the weight."""
    assert module is not None
    return mul(to(_normalised(to(x, 4), rows), x.e), module.weight)


def gemma(x: Tensor, module: Linear | None, rows: int) -> Tensor:
    """Gemma's: normalised(x in float32) * (1 + weight in float32), then back."""
    assert module is not None
    tape = tape_of(x)
    normed = _normalised(to(x, 4), rows)
    normed = mul(normed, shift(to(leaf(tape, module.weight), 4)))
    return to(normed, x.e)


def rms_float(x: Tensor, module: Linear | None, rows: int) -> Tensor:
    """Gemma 4's: x in float32 times a power of its mean square, times the weight in float32 if there is one."""
    wide = to(x, 4)
    squared = shift(mean(power(wide), rows))
    normed = mul(wide, power(squared))
    del wide, squared
    if module is not None:
        normed = mul(normed, to(leaf(tape_of(x), module.weight), 4))
    return to(normed, x.e)


def _normalised(x: Tensor, rows: int) -> Tensor:
    return mul(x, rsqrt(shift(mean(power(x), rows))))


def cohere(x: Tensor, module: Linear | None, rows: int) -> Tensor:
    """Cohere's LayerNorm, written in Python over float32."""
    assert module is not None
    tape, e = tape_of(x), x.e
    wide = to(x, 4)
    center = mean(wide, rows)
    variance = mean(power(sub(wide, center)), rows)
    wide = mul(sub(wide, center), rsqrt(shift(variance)))
    wide = mul(wide, to(leaf(tape, module.weight), 4))
    return to(wide, e)


def layer(x: Tensor, module: Linear | None, rows: int) -> Tensor:
    """nn.LayerNorm; autocast runs it in float32."""
    assert module is not None
    tape = tape_of(x)
    e = 4 if tape.autocast else x.e
    wide = to(x, e)
    return layer_norm(wide, widened(tape, module.weight, e), widened(tape, module.bias, e), rows)


def layer_each(x: Tensor, module: Linear | None, rows: int) -> Tensor:
    """StableLM 2 12B: a LayerNorm of its own for every head, joined again; `module` has the weights of all."""
    assert module is not None
    tape, heads = tape_of(x), module.out
    e = 4 if tape.autocast else x.e
    weight = Parameter(module.weight.n // heads, module.weight.e, module.weight.trainable)
    parts = split(x, [x.n // heads] * heads)
    return cat([layer_norm(to(part, e), widened(tape, weight, e), None, rows // heads) for part in parts])


def layer_bare(x: Tensor, _module: Linear | None, rows: int) -> Tensor:
    """OLMo's: F.layer_norm over float32 without weights, then back."""
    return to(layer_norm(to(x, 4), None, None, rows), x.e)


def layer_plus_one(x: Tensor, module: Linear | None, rows: int) -> Tensor:
    """Nemotron's: F.layer_norm with weight + 1, in autocast's own width."""
    assert module is not None
    tape = tape_of(x)
    e = tape.autocast or x.e
    weight = to(shift(leaf(tape, module.weight)), e)
    return layer_norm(to(x, e), weight, widened(tape, module.bias, e), rows)


def normed(x: Tensor, module: Linear | None, rows: int, dims: LayerDims) -> Tensor:
    """The norm of the model type, Liger's in its place, or a compiled one; x itself where the layer has none."""
    if module is None and dims.arch.norm not in BARE:
        return x
    if module is not None and ("norm" in dims.fused or "norm_copy" in dims.fused):
        return liger.norm(x, module, rows, "norm" in dims.fused)
    if dims.compiled:
        return compiled.norm(x, module, rows)
    return NORMS[dims.arch.norm](x, module, rows)


def inner_norm(x: Tensor, modules: Modules, name: str, dims: LayerDims) -> Tensor:
    """BitNet: a norm before the last projection of a branch; x itself where the layer has none of that name."""
    module = modules.leaf(name)
    return x if module is None else normed(x, module, dims.rows, dims)


def unchanged(x: Tensor, module: Linear | None, rows: int) -> Tensor:  # noqa: ARG001
    """No norm, where a config leaves it out."""
    return x


BARE = ("rms_bare", "layer_bare")
"""Norms without a weight."""

NORMS: dict[str, Norm] = {"none": unchanged} | {
    norm.__name__: norm
    for norm in (
        rms, rms_wide, t5, rms_cast, rms_bare, rms_nested, rms_float, gemma, cohere, layer, layer_each, layer_bare,
        layer_plus_one,
    )
}  # fmt: skip
