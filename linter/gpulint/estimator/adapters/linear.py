"""Linear layers with what PEFT puts around them.

DoRA: what PEFT makes of a Linear's output, its low-rank branch and the magnitudes of its columns.

Local variables here live as long as those of peft's own code.
Source: peft 0.21 tuners/lora/variants.py `DoraLinearVariant.forward`, tuners/lora/dora.py `DoraLinearLayer`.

LoRA over the embeddings: a second look-up, of rows of r elements, and a product back to the width.

Source: peft 0.21.2 tuners/lora/layer.py `Embedding.forward`, variants.py `DoraEmbeddingVariant`, dora.py
`DoraEmbeddingLayer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...models.adapter_types import kind_of
from ..tape.backward import made
from ..tape.indexing import embedding
from ..tape.labels import labelled
from ..tape.matmuls import linear, linear_wide
from ..tape.ops import add, contiguous, dropout, leaf, mul, scale, shift, sub, to
from ..tape.tape import tape_of
from ..tape.tensor import Tensor
from .forwards import ADAPTED
from .unadapted import product, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..tape.tape import Tape
    from ..tape.tensor import Parameter
    from .modules import Linear


ROLES = {
    "q": "query projection",
    "k": "key projection",
    "v": "value projection",
    "qkv": "query, key and value projection",
    "o": "attention output projection",
    "gate": "MLP gate projection",
    "up": "MLP up projection",
    "gate_up": "MLP gate and up projection",
    "down": "MLP down projection",
    "head": "lm_head",
    "embedding": "lm_head (tied)",
}
"""What a derivation calls a projection, where that is not its role."""

PROJECTION = ("layer.role", ROLES)


@labelled(by=PROJECTION)
def project(x: Tensor, layer: Linear, rows: int, base: Callable[[Tensor], None] | None = None) -> Tensor:
    """One Linear: plain, packed, with a LoRA branch (peft tuners/lora/layer.py and bnb.py) or another adapter.

    Over a packed layer under autocast PEFT casts nothing back: with DoRA's float32 magnitudes the output is float32
    (peft 0.21.2 tuners/lora/bnb.py `requires_conversion`).
    `base` is shown what the layer itself makes, as a hook that was there before the adapter is. With the adapter
    disabled the layer is all there is (`disable_adapters` in each type's layer.py).
    """
    if tape_of(x).bare:
        return product(x, layer, rows)
    if layer.adapter is not None:
        return ADAPTED[kind_of(layer.adapter)](x, layer, rows)
    result = product(x, layer, rows)
    if base is not None:
        base(result)
    if layer.scale is not None:
        return rescaled(result, layer)
    if layer.a is None or layer.b is None:
        return result
    tape, e = tape_of(x), result.e
    if layer.packed:
        result = contiguous(result)
    if not layer.packed or not tape.autocast:
        x = to(x, layer.a.e)
    if layer.dora is not None:
        result = add(result, dora(x, result, layer, rows))
        return result if layer.packed and tape.autocast else to(result, e)
    branch = scale(linear(linear(dropout(x, layer.dropout), layer.a, rows), layer.b, rows))
    if layer.packed and not tape.autocast:
        branch = to(branch, e)
    result = add(result, branch)
    return to(result, e)


@labelled(by=PROJECTION)
def rescaled(x: Tensor, layer: Linear) -> Tensor:
    """scale * (x + shift), the sum saved for the scale's gradient (litgpt/adapter_v2.py AdapterV2Linear)."""
    assert layer.scale is not None
    assert layer.shift is not None
    return mul(add(x, leaf(tape_of(x), layer.shift)), layer.scale)


@labelled(by=PROJECTION)
def merged(layer: Linear, tape: Tape, e: int) -> Tensor | Parameter:
    """A parameter that is no Linear's weight, as PEFT adapts it: base and low-rank product are put together in full.

    The sum is made anew for every use and saved where it is used (peft tuners/lora/layer.py ParamWrapper).
    """
    weight, a, b = layer.weight, layer.a, layer.b
    if a is None or b is None or tape.bare:
        return weight
    first, second = to(leaf(tape, a), e), to(leaf(tape, b), e)
    sizes = a.n, b.n
    tape.scratch(weight.n * e)
    y = tape.new(weight.n, e)
    y.groups = weight.groups

    def back(_: Tensor, _kept: object = (first, second)) -> tuple[Tensor, Tensor]:
        return tape.new(sizes[0], e), tape.new(sizes[1], e)

    return made(y, tape.node((first, second), back))


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


def adapted_embeds(embeds: Tensor, layer: Linear, ids: Tensor, rows: int, scaled: bool) -> Tensor:
    """embeds + A[ids] B, in the width of `embeds`: h elements a row from r; `scaled` where the embeddings are.

    DoRA multiplies both by the magnitudes over a norm of the weight with the product added, V h elements each.
    """
    if layer.a is None or layer.b is None or tape_of(embeds).bare:
        return embeds
    tape, e = tape_of(embeds), embeds.e
    vocabulary = layer.weight.n // (embeds.n // rows)
    if layer.dora is None:
        branch = _branch(layer, ids, rows, vocabulary)
        if scaled:
            branch = scale(branch)
        return to(add(embeds, branch), e)
    product = tape.new(layer.weight.n, tape.autocast or layer.a.e)
    tape.scratch(2 * layer.weight.n * max(product.e, layer.weight.e))
    magnitude = leaf(tape, layer.dora)
    branch = scale(mul(magnitude, _branch(layer, ids, rows, vocabulary, scaled=False)))
    del product
    if scaled:
        branch = scale(branch)
    return to(add(mul(magnitude, embeds), branch), e)


def _branch(layer: Linear, ids: Tensor, rows: int, vocabulary: int, scaled: bool = True) -> Tensor:
    assert layer.a is not None
    assert layer.b is not None
    looked = embedding(tape_of(ids), rows, layer.a, layer.a.n // vocabulary, ids)
    found = linear(looked, layer.b, rows)
    return scale(found) if scaled else found
