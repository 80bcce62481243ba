"""Layers that mix tokens without attention: state spaces, linear attention, convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .adapters import project
from .convolution import short_convolution
from .delta import gated_delta
from .ops import mul, unary
from .selective import selective
from .ssm import mamba2

if TYPE_CHECKING:
    from .modules import Modules
    from .setting import Setting
    from .tensor import Tensor

ROLES = ("ssm", "conv", "qkv", "q", "k", "v", "o", "other")


def mixer(x: Tensor, modules: Modules, s: Setting) -> Tensor:
    """An estimate, not a derivation: the fused kernels of these layers are not read.

    Counted: every projection of x with a saved output, one activation of the widest of them, and the product that
    the last projection reads. Convolution and scan states are left out.
    """
    if s.traits.mixer == "delta":
        return gated_delta(x, modules, s)
    if s.traits.mixer.startswith("mamba2"):
        return mamba2(x, modules, s)
    if s.traits.mixer == "convolution":
        return short_convolution(x, modules, s)
    if s.traits.mixer == "mamba":
        return selective(x, modules, s)
    width = s.hidden
    found = [m for m in modules.named.values() if m.role in ROLES and m.weight.n > width]
    last = next((m for m in reversed(found) if m.out == width), None)
    outputs = [project(x, m, s.rows) for m in found if m is not last and m.weight.n == m.out * width]
    if not outputs or last is None:
        return unary(x)
    widest = max(outputs, key=lambda y: y.n)
    inner = s.rows * (last.weight.n // width)
    gate = unary(widest)
    y = mul(gate, gate) if gate.n == inner else _narrowed(gate, inner)
    return project(y, last, s.rows)


def _narrowed(x: Tensor, n: int) -> Tensor:
    tape, was, e = x.storage.tape, x.n, x.e
    y = tape.new(n, e)
    kept = x.storage

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor]:
        return (tape.new(was, e),)

    y.node = tape.node((x,), back)
    return y
