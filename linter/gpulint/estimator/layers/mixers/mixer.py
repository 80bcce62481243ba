"""Layers that mix tokens without attention: state spaces, linear attention, convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...adapters.linear import project
from ...tape.backward import fresh
from ...tape.labels import labelled
from ...tape.ops import mul, unary
from ...tape.tape import tape_of
from .convolution import short_convolution
from .gated_delta_net import gated_delta
from .kimi_delta_attention import kimi_delta
from .lightning_attention import lightning
from .mamba_scan import selective
from .rglru import recurrent_unit
from .ssm import mamba2

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...adapters.modules import Modules
    from ...tape.tensor import Tensor
    from ..dims import LayerDims

PART = "mixer"

MIXERS: dict[str, Callable[[Tensor, Modules, LayerDims], Tensor]] = {
    "delta": gated_delta,
    "mamba2": mamba2,
    "mamba2_scaled": mamba2,
    "convolution": short_convolution,
    "mamba": selective,
    "lightning": lightning,
    "rglru": recurrent_unit,
    "kimi_delta": kimi_delta,
}

ROLES = ("ssm", "conv", "qkv", "q", "k", "v", "o", "other")


def mixer(x: Tensor, modules: Modules, dims: LayerDims) -> Tensor:
    """The mixer of the model type; of one that is not read an estimate, not a derivation.

    Counted then: every projection of x with a saved output, one activation of the widest of them, and the product that
    the last projection reads. Convolution and scan states are left out.
    """
    if dims.arch.mixer:
        return MIXERS[dims.arch.mixer](x, modules, dims)
    width = dims.hidden
    found = [m for m in modules.named.values() if m.role in ROLES and m.weight.n > width]
    last = next((m for m in reversed(found) if m.out == width), None)
    outputs = [project(x, m, dims.rows) for m in found if m is not last and m.weight.n == m.out * width]
    if not outputs or last is None:
        return unary(x)
    widest = max(outputs, key=lambda y: y.n)
    inner = dims.rows * (last.weight.n // width)
    gate = unary(widest)
    y = mul(gate, gate) if gate.n == inner else _narrowed(gate, inner)
    return project(y, last, dims.rows)


@labelled("low-rank weight in 16 bits")
def _narrowed(x: Tensor, n: int) -> Tensor:
    return fresh(tape_of(x).new(n, x.e), x, x.storage)
