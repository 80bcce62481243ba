"""MLPs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .adapters import project
from .ops import mul, unary

if TYPE_CHECKING:
    from .setting import Linear, Setting
    from .tape import Tensor


def gated(x: Tensor, modules: dict[str, Linear], s: Setting) -> Tensor:
    """down(act(gate(x)) * up(x))."""
    product = mul(
        unary(project(x, modules["mlp.gate_proj"], s.rows)), project(x, modules["mlp.up_proj"], s.rows)
    )
    return project(product, modules["mlp.down_proj"], s.rows)
