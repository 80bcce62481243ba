"""Activation functions of `ACT2FN` (transformers/activations.py) by what they save."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tape.backward import made
from ..tape.labels import labelled
from ..tape.ops import add, bounded, leaf, mul, power, scale, shift, sub, to, unary
from ..tape.tape import tape_of
from ..tape.tensor import wider

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..adapters.modules import Linear, Modules
    from ..tape.tensor import Tensor


def fused(x: Tensor) -> Tensor:
    """One kernel that saves its input: silu, gelu, gelu_pytorch_tanh ..."""
    return unary(x)


def relu(x: Tensor) -> Tensor:
    """Saves its output."""
    return unary(x, save_input=False, save_output=True)


def relu_squared(x: Tensor) -> Tensor:
    """relu, then its square."""
    return _power(relu(x))


def gelu_new(x: Tensor) -> Tensor:
    """0.5 * x * (1 + tanh(c * (x + 0.044715 * x ** 3))) in Python: x, tanh and both factors are saved.

    Autocast runs pow in float32, so everything after it is twice as wide.
    """
    return mul(scale(x), shift(relu(scale(add(x, scale(_power(x)))))))


def _power(x: Tensor) -> Tensor:
    return power(to(x, 4) if tape_of(x).autocast else x)


def gelu_fast(x: Tensor) -> Tensor:
    """0.5 * x * (1 + tanh(x * c * (1 + 0.044715 * x * x)))."""
    return mul(scale(x), shift(relu(mul(scale(x), shift(mul(scale(x), x))))))


def quick_gelu(x: Tensor) -> Tensor:
    """x * sigmoid(1.702 * x)."""
    return mul(x, relu(scale(x)))


def gelu_bloom(x: Tensor) -> Tensor:
    """BLOOM's GELU, an autograd function of its own: saves x, its steps are temporaries of both passes."""
    tape, n, e = tape_of(x), x.n, x.e
    tape.scratch(3 * n * e)
    y = tape.new(n, e)

    def back(_: Tensor, _kept: object = x.storage) -> tuple[Tensor]:
        tape.scratch(4 * n * e)
        return (tape.new(n, e),)

    return made(y, tape.node((x,), back))


XIELU = "xielu"
"""Its name in a config."""


def xielu(modules: Modules) -> Callable[[Tensor], Tensor]:
    """xIELU in Python, with two trained numbers (Apertus, `_xielu_python`); autocast runs expm1 in float32."""
    positive, negative = modules.require("alpha_p"), modules.require("alpha_n")

    def _expm1(x: Tensor, wide: int) -> Tensor:
        return unary(to(bounded(x), wide), save_input=False, save_output=True)

    def both(x: Tensor) -> Tensor:
        tape = tape_of(x)
        wide = 4 if tape.autocast else x.e
        first, second = (unary(to(leaf(tape, module.weight), wide)) for module in (positive, negative))
        second = shift(second)
        chosen = tape.new(x.n, 1)
        above = add(mul(mul(x, first), x), scale(x))
        below = add(mul(sub(_expm1(x, wide), x), second), scale(x))
        return where(chosen, above, below)

    return both


@labelled("choice")
def where(chosen: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """torch.where: saves the mask; each operand gets a masked copy of the gradient."""
    tape, n, e = tape_of(a), a.n, wider(a.e, b.e)
    y = tape.new(n, e)

    def back(_: Tensor, _kept: object = chosen) -> tuple[Tensor, Tensor]:
        return tape.new(n, e), tape.new(n, e)

    return made(y, tape.node((a, b), back))


@labelled(part="vision tower")
def tanh_gated(x: Tensor, gate: Linear) -> Tensor:
    """gate.tanh() * x, the gate a parameter of one number with a dimension: float32 gates widen x."""
    return mul(unary(leaf(tape_of(x), gate.weight), save_input=False, save_output=True), x)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": relu,
    "tanh": relu,
    "sigmoid": relu,
    "relu2": relu_squared,
    "gelu_new": gelu_new,
    "gelu_fast": gelu_fast,
    "quick_gelu": quick_gelu,
    "gelu_bloom": gelu_bloom,
}
"""What is not listed is one fused kernel."""


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """The function of a config's `hidden_act`."""
    return ACTIVATIONS.get(name, fused)
