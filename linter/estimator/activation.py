"""Activation functions of `ACT2FN` (transformers/activations.py) by what they save."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .ops import add, mul, power, scale, shift, to, unary

if TYPE_CHECKING:
    from collections.abc import Callable

    from .tensor import Tensor


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
    return power(to(x, 4) if x.storage.tape.autocast else x)


def gelu_fast(x: Tensor) -> Tensor:
    """0.5 * x * (1 + tanh(x * c * (1 + 0.044715 * x * x)))."""
    return mul(scale(x), shift(relu(mul(scale(x), shift(mul(scale(x), x))))))


def quick_gelu(x: Tensor) -> Tensor:
    """x * sigmoid(1.702 * x)."""
    return mul(x, relu(scale(x)))


def gelu_bloom(x: Tensor) -> Tensor:
    """BLOOM's GELU, an autograd function of its own: saves x, its steps are temporaries of both passes."""
    tape, n, e = x.storage.tape, x.n, x.e
    tape.scratch(3 * n * e)
    y = tape.new(n, e)

    def back(_: Tensor, _kept: object = x.storage) -> tuple[Tensor]:
        tape.scratch(4 * n * e)
        return (tape.new(n, e),)

    y.node = tape.node((x,), back)
    return y


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
