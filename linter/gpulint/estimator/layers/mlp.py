"""Dense feed-forward layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..adapters import fused_lora
from ..adapters.linear import project
from ..tape.indexing import split
from ..tape.ops import dropout, mul
from . import compiled, liger
from .activation import XIELU, activation, xielu
from .norms import inner_norm

if TYPE_CHECKING:
    from ..adapters.modules import Modules
    from ..tape.tensor import Tensor
    from .setting import Setting

PART = "MLP"


def dense(x: Tensor, modules: Modules, s: Setting, prefix: str) -> Tensor:
    """down(act(gate(x)) * up(x)), or down(act(up(x))); `prefix` selects the roles of shared experts."""
    in_python = s.activation == "xielu" and XIELU not in s.job.versions
    fuses_gate = s.compiled and not s.framework.gates_apart
    act = xielu(modules) if in_python else activation(s.activation)
    if s.compiled and (fuses_gate or modules.role(prefix + "gate") is None):
        act = compiled.activation
    down = modules.need(prefix + "down")
    gate, up = modules.role(prefix + "gate"), modules.role(prefix + "up")
    fused = modules.role(prefix + "gate_up") or (gate if up is None else None)
    if fused is not None:
        both = project(x, fused, s.rows)
        if "mlp" in s.fused:
            product = liger.gated_fused(both)
            return project(product, down, s.rows)
        first, second = split(both, (both.n // 2, both.n // 2))
        if fuses_gate:
            return project(compiled.gated(first, second), down, s.rows)
        product = mul(second, act(first)) if s.traits.mlp == "up_first" else mul(act(first), second)
        del both
        return project(dropout(product, s.mlp_dropout), down, s.rows)
    if not prefix and gate is not None and up is not None and fused_lora.fits(s, "mlp", gate, up, down):
        return fused_lora.mlp(x, modules, s)
    if gate is not None and up is not None and "mlp" in s.fused:
        product = liger.gated(project(x, gate, s.rows), project(x, up, s.rows))
        return project(product, down, s.rows)
    if gate is not None and up is not None:
        if fuses_gate:
            product = compiled.gated(project(x, gate, s.rows), project(x, up, s.rows))
        else:
            product = mul(act(project(x, gate, s.rows)), project(x, up, s.rows))
        product = inner_norm(product, modules, "ffn_sub_norm", s)
        return project(product, down, s.rows)
    assert up is not None
    hidden = project(x, up, s.rows)
    hidden = act(hidden)
    return project(hidden, down, s.rows)
