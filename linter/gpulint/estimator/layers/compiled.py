"""What torch.compile's partitioner saves of a decoder layer's pointwise operations.

`min_cut_rematerialization_partition` (torch/_functorch/partitioners.py) cuts the graph of a layer between matrix
products: it keeps their operands, the outputs of attention kernels and of products, and one number a row of a
reduction, and makes pointwise operations again inside backward's kernels. Read off its partition of a Llama layer
(torch 2.13): bf16 without autocast 8 T h of norms and residual stream, 6 T f of gate, up and product, where eager keeps
16 T h and 8 T f.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tape.backward import fresh, made
from ..tape.labels import labelled
from ..tape.tape import tape_of

if TYPE_CHECKING:
    from ..adapters.modules import Linear
    from ..tape.tensor import Tensor
    from .attention.rope import Table


@labelled("output and statistics")
def norm(x: Tensor, module: Linear | None, rows: int) -> Tensor:
    """A norm with the casts around it: saves x itself and 4 bytes a row; its result has the width of the next product.

    A LayerNorm saves the mean too.
    """
    tape, n, e = tape_of(x), x.n, x.e
    weight = None if module is None else module.weight
    bias = None if module is None else module.bias
    y = tape.new(n, tape.autocast or e)
    kept = (x.storage, tape.new(rows * (2 if bias is not None else 1), 4))

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor | None, ...]:
        gx = tape.new(n, e)
        gw = tape.new(weight.n, weight.e) if weight is not None and weight.trainable else None
        return gx, gw, tape.new(bias.n, bias.e) if bias is not None and bias.trainable else None

    return made(y, tape.node((x, weight, bias), back))


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """act(gate) * up as one kernel: saves both; backward makes both gradients at once."""
    tape, n, e = tape_of(gate), gate.n, gate.e
    y = tape.new(n, e)

    def back(_: Tensor, _kept: object = (gate.storage, up.storage)) -> tuple[Tensor, Tensor]:
        return tape.new(n, e), tape.new(n, e)

    return made(y, tape.node((gate, up), back))


def activation(x: Tensor) -> Tensor:
    """Any activation function as one kernel: saves x."""
    return fresh(tape_of(x).new(x.n, x.e), x, x.storage)


def rope(q: Tensor, k: Tensor, table: Table) -> tuple[Tensor, Tensor]:
    """Queries and keys turned by a kernel each; saved are cos and sin."""
    return _turned(q, table), _turned(k, table)


def _turned(x: Tensor, table: Table) -> Tensor:
    return fresh(tape_of(x).new(x.n, x.e), x, (table.cos, table.sin))
