"""Adapters that work through frozen or shared projections of a module (peft 0.21.2, tuners/*/layer.py).

Each function follows the `forward` of `tuners/<type>/layer.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...models.adapter_types import number, option
from ..tape.indexing import gather
from ..tape.matmuls import linear, linear_wide
from ..tape.ops import (
    add,
    dropout,
    leaf,
    mul,
    scale,
    sub,
    to,
    unary,
)
from ..tape.rows import softmax
from ..tape.tape import tape_of
from ..tape.tensor import Parameter, Tensor
from .deltas import combined
from .rotations import cayley
from .unadapted import product

if TYPE_CHECKING:
    from .modules import Linear


def beft(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """A bias in the adapter's width."""
    result = product(x, layer, rows)
    return to(add(result, layer.parts["beft_bias"]), result.e)


def deft(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """The output in float32, less its projection on a few directions, plus a low-rank path into them."""
    tape, parts = tape_of(x), layer.parts
    base = product(x, layer, rows)
    e = base.e
    first = to(base, 4)
    wide = to(x, 4)
    directions = leaf(tape, parts["deft_P"])
    if str(option(layer.settings, "decomposition_method")) == "qr":
        right = directions = _orthogonal(directions)
    else:
        right = unary(directions, save_input=False, save_output=True)
    correction = linear_wide(linear_wide(first, right, rows), directions, rows)
    result = sub(first, correction)
    if "deft_R" in parts:
        inward = scale(leaf(tape, parts["deft_R"]))
        result = add(result, linear_wide(linear_wide(dropout(wide, layer.dropout), inward, rows), directions, rows))
    result = to(result, e)
    del base, first, correction
    return result


def _orthogonal(x: Tensor) -> Tensor:
    """torch.linalg.qr: saves its factor; the triangular one is small."""
    return unary(x, save_input=False, save_output=True)


def lily(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """A low-rank pair whose upward half is a mixture by a router; both halves belong to several layers."""
    tape, router = tape_of(x), layer.parts["lily_router"]
    result = product(x, layer, rows)
    e, count = result.e, number(layer.settings, "num_B")
    rank = router.n // count
    down = _shared(rank * (x.n // rows), router.e)
    up = _shared(count * rank * (result.n // rows), router.e)
    wide = to(x, down.e)
    hidden = linear(wide, down, rows)
    chances = softmax(linear(hidden, router, rows), router.e, fused=True)
    mixed = combined(tape, (chances, up), up.n // count, tape.autocast or router.e)
    delta = linear_wide(hidden, mixed, rows)
    result = add(result, to(scale(delta), e))
    del hidden, mixed, delta
    return result


def _shared(n: int, e: int) -> Parameter:
    """A trained matrix of several layers, whose gradient is counted once, with the optimizer step."""
    found = Parameter(n, e, True)
    found.summed = True
    return found


def peanut(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """A small network over the weight's columns makes a weight to add; a float32 copy of the weight is kept."""
    tape, parts, n = tape_of(x), layer.parts, layer.weight.n
    result = product(x, layer, rows)
    columns = x.n // rows
    same = layer.width == layer.weight.e
    copy = Tensor(tape.nothing, n, layer.width) if same else tape.new(n, layer.width)
    hidden = linear(copy, parts["peanut_A"], columns)
    hidden = unary(hidden, save_input=False, save_output=True)
    skipped = []
    for place in range(number(layer.settings, "depth")):
        skipped.append(hidden)
        hidden = linear(hidden, parts[f"peanut_encoder_{place}"], columns)
        hidden = unary(hidden, save_input=False, save_output=True)
    for place in range(number(layer.settings, "depth")):
        hidden = linear(hidden, parts[f"peanut_decoder_{place}"], columns)
        hidden = add(unary(hidden, save_input=False, save_output=True), skipped.pop())
    made = linear(hidden, parts["peanut_B"], columns)
    delta = scale(made)
    del made, hidden, copy
    branch = linear_wide(to(x, delta.e), delta, rows)
    return add(result, to(branch, result.e))


def tinylora(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """Singular vectors of the weight with a learned square between them."""
    tape, parts = tape_of(x), layer.parts
    result = product(x, layer, rows)
    count = number(layer.settings, "u")
    vector = parts.get("tinylora_v") or _shared(count, layer.width)
    between = combined(tape, (vector,), parts["tinylora_P"].n // count, tape.autocast or layer.width)
    inner = linear(to(dropout(x, layer.dropout), layer.width), parts["tinylora_A"], rows)
    branch = linear(linear_wide(inner, between, rows), parts["tinylora_B"], rows)
    del inner
    return to(add(result, branch), result.e)


def psoft(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """Singular vectors of the weight with a rotation between them, of which the identity is taken off."""
    tape, parts = tape_of(x), layer.parts
    result = product(x, layer, rows)
    wide = dropout(to(x, 4), layer.dropout)
    rank = parts["psoft_B"].n // (result.n // rows)
    inner = linear(wide, Parameter(rank * (x.n // rows), 4, False), rows)
    square = (inner.n // rows) ** 2
    rotation = cayley(tape, layer.settings, parts["psoft_R"], square, layer.width)
    for side in "ba":
        if f"vector_{side}" in parts:
            rotation = mul(rotation, leaf(tape, parts[f"vector_{side}"]))
    turned = linear_wide(inner, to(rotation, 4), rows)
    del rotation
    branch = linear(sub(turned, inner), parts["psoft_B"], rows)
    result = to(add(result, scale(branch)), result.e)
    del turned, inner, branch
    return result


def unilora(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """A low-rank pair whose every element is one of a short vector that all modules share, times a fixed number."""
    tape, parts = tape_of(x), layer.parts
    result = product(x, layer, rows)
    vector = _shared(1, layer.width)
    nothing = Tensor(tape.nothing, 0, 8)
    pair = [
        mul(gather(leaf(tape, vector), parts[f"unilora_scales_{side}"].n, nothing), parts[f"unilora_scales_{side}"])
        for side in "AB"
    ]
    wide = dropout(to(x, layer.width), layer.dropout)
    branch = linear_wide(linear_wide(wide, pair[0], rows), pair[1], rows)
    return to(add(result, branch), result.e)


def supertuning(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """A copy of the weight with some elements changed, whose places are held as int64; perhaps a low-rank pair."""
    tape, parts, weight = tape_of(x), layer.parts, layer.weight
    values = to(leaf(tape, parts["supertuning_values"]), weight.e)
    places = tape.new(values.n, 8)
    changed = combined(tape, (values,), weight.n, weight.e, saves=(places,))
    result = linear_wide(x, changed, rows)
    if "supertuning_lora_A" not in parts:
        return result
    wide = to(dropout(x, layer.dropout), layer.width)
    branch = linear(linear(wide, parts["supertuning_lora_A"], rows), parts["supertuning_lora_B"], rows)
    return add(result, to(scale(branch), result.e))
