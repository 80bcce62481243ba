"""Linear layers with what PEFT puts around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...models.adapter_types import kind_of
from ..tape.backward import made
from ..tape.labels import labelled
from ..tape.matmuls import linear
from ..tape.ops import add, contiguous, dropout, leaf, mul, scale, to
from ..tape.tape import tape_of
from .dora import dora
from .forwards import ADAPTED
from .unadapted import product

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..tape.tape import Tape
    from ..tape.tensor import Parameter, Tensor
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
