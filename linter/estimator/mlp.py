"""Feed-forward layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .activation import activation
from .adapters import project
from .experts import routed, shared_gate
from .ops import add, mul, split

if TYPE_CHECKING:
    from .modules import Modules
    from .setting import Setting
    from .tape import Tensor


def feed_forward(x: Tensor, modules: Modules, s: Setting) -> Tensor:
    """Gated (separate or fused gate and up), plain, or a mixture of experts, by the modules that the layer has."""
    if modules.role("expert_gate_up") is None:
        return dense(x, modules, s, "")
    if modules.role("shared_down") is None:
        return routed(x, modules, s)
    if s.traits.shared == "before":
        other = dense(x, modules, s, "shared_")
        y = routed(x, modules, s)
        other = shared_gate(x, other, modules, s)
        return add(y, other)
    y = routed(x, modules, s)
    return add(y, dense(x, modules, s, "shared_"))


def dense(x: Tensor, modules: Modules, s: Setting, prefix: str) -> Tensor:
    """down(act(gate(x)) * up(x)), or down(act(up(x))); `prefix` selects the roles of shared experts."""
    act = activation(s.activation)
    down = modules.need(prefix + "down")
    fused = modules.role(prefix + "gate_up")
    gate, up = modules.role(prefix + "gate"), modules.role(prefix + "up")
    if fused is not None:
        both = project(x, fused, s.rows)
        first, second = split(both, (both.n // 2, both.n // 2))
        product = mul(second, act(first)) if s.traits.mlp == "up_first" else mul(act(first), second)
        del both
        return project(product, down, s.rows)
    if gate is not None and up is not None:
        product = mul(act(project(x, gate, s.rows)), project(x, up, s.rows))
        return project(product, down, s.rows)
    assert up is not None
    hidden = project(x, up, s.rows)
    hidden = act(hidden)
    return project(hidden, down, s.rows)
