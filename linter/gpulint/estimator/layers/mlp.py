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
    from .dims import LayerDims

PART = "MLP"


def dense(x: Tensor, modules: Modules, dims: LayerDims, prefix: str) -> Tensor:
    """down(act(gate(x)) * up(x)), or down(act(up(x))); `prefix` selects the roles of shared experts."""
    in_python = dims.activation == XIELU and not dims.xielu_kernel
    fuses_gate = dims.compiled and not dims.gate_apart
    act = xielu(modules) if in_python else activation(dims.activation)
    if dims.compiled and (fuses_gate or modules.role(prefix + "gate") is None):
        act = compiled.activation
    down = modules.need(prefix + "down")
    gate, up = modules.role(prefix + "gate"), modules.role(prefix + "up")
    fused = modules.role(prefix + "gate_up") or (gate if up is None else None)
    if fused is not None:
        both = project(x, fused, dims.rows)
        if "mlp" in dims.fused:
            product = liger.gated_fused(both)
            return project(product, down, dims.rows)
        first, second = split(both, (both.n // 2, both.n // 2))
        if fuses_gate:
            return project(compiled.gated(first, second), down, dims.rows)
        product = mul(second, act(first)) if dims.arch.mlp == "up_first" else mul(act(first), second)
        del both
        return project(dropout(product, dims.dropout.mlp), down, dims.rows)
    if not prefix and gate is not None and up is not None and fused_lora.fits("mlp", gate, up, down):
        return fused_lora.mlp(x, modules, dims.rows)
    if gate is not None and up is not None and "mlp" in dims.fused:
        product = liger.gated(project(x, gate, dims.rows), project(x, up, dims.rows))
        return project(product, down, dims.rows)
    if gate is not None and up is not None:
        if fuses_gate:
            product = compiled.gated(project(x, gate, dims.rows), project(x, up, dims.rows))
        else:
            product = mul(act(project(x, gate, dims.rows)), project(x, up, dims.rows))
        product = inner_norm(product, modules, "ffn_sub_norm", dims)
        return project(product, down, dims.rows)
    assert up is not None
    hidden = project(x, up, dims.rows)
    hidden = act(hidden)
    return project(hidden, down, dims.rows)
