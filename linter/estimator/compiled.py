"""What a decoder layer under torch.compile saves in the place of eager operations.

Inductor fuses chains of pointwise operations and reductions into one kernel. Its partitioner saves what a kernel or a
matmul writes anyway and computes the rest of a chain again in backward: no float32 copy of a norm's input, no
activation of the gate (torch/_functorch/partitioners.py `min_cut_rematerialization_partition`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .ops import layer_norm, made
from .tensor import Tensor

if TYPE_CHECKING:
    from .modules import Linear
    from .rope import Table


def norm(x: Tensor, module: Linear | None, rows: int) -> Tensor:
    """One kernel each way: saves x in its own width and the statistics of each row."""
    return layer_norm(x, None if module is None else module.weight, None if module is None else module.bias, rows)


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """act(gate) * up: saves both operands; backward writes both gradients."""
    tape, n, e = gate.storage.tape, gate.n, gate.e
    y = tape.new(n, e)

    def back(_: Tensor, _kept: object = (gate.storage, up.storage)) -> tuple[Tensor, Tensor]:
        return tape.new(n, e), tape.new(n, e)

    return made(y, tape.node((gate, up), back))


def rope(q: Tensor, k: Tensor, table: Table) -> tuple[Tensor, Tensor]:
    """Queries and keys turned by a kernel each; saved are cos and sin."""
    return _turned(q, table), _turned(k, table)


def _turned(x: Tensor, table: Table) -> Tensor:
    tape, n, e = x.storage.tape, x.n, x.e
    y = tape.new(n, e)

    def back(_: Tensor, _kept: object = (table.cos, table.sin)) -> tuple[Tensor]:
        return (tape.new(n, e),)

    return made(y, tape.node((x,), back))
