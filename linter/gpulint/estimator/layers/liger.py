"""Liger's fused kernels (liger-kernel 0.8.5): what they save and allocate.

Which modules of a model type `apply_liger_kernel_to_*` replaces is in `arch_spec.json` under `liger`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tape.backward import made
from ..tape.indexing import split
from ..tape.labels import labelled
from ..tape.ops import contiguous
from ..tape.tape import tape_of
from ..tape.tensor import Tensor

if TYPE_CHECKING:
    from ..adapters.modules import Linear
    from .attention.rope import Table

MULTIPROCESSORS = 108
"""Rows of float32 partial sums in RMSNorm's backward, one a multiprocessor: an A100 has 108, an H100 132."""


@labelled("output and statistics")
def norm(x: Tensor, module: Linear | None, rows: int, in_place: bool) -> Tensor:
    """RMSNorm: saves x itself and 4 bytes a row; the gradient of x overwrites that of the output (ops/rms_norm.py)."""
    tape, n, e = tape_of(x), x.n, x.e
    weight = None if module is None else module.weight
    y = tape.new(n, e)
    kept = (x.storage, tape.new(rows, 4))
    needed = x.node is not None

    def back(g: Tensor, _kept: object = kept) -> tuple[Tensor | None, Tensor | None]:
        gw = None
        gx = Tensor(g.storage, n, e, view=True) if in_place else tape.new(n, e)
        if weight is not None and weight.trainable:
            partial = tape.new(MULTIPROCESSORS * weight.n, 4)
            gw = tape.new(weight.n, 4)
            del partial
        return (gx if needed else None, gw)

    return made(y, tape.node((x, weight), back))


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """SwiGLU or GeGLU: saves gate and up, whose bytes take their gradients (ops/swiglu.py)."""
    tape = tape_of(gate)
    y = tape.new(gate.n, gate.e)
    first, second = gate.storage, up.storage

    def back(_: Tensor) -> tuple[Tensor, Tensor]:
        return (Tensor(first, gate_n, e, view=True), Tensor(second, up_n, e, view=True))

    gate_n, up_n, e = gate.n, up.n, gate.e
    return made(y, tape.node((gate, up), back))


def gated_fused(both: Tensor) -> Tensor:
    """The same for gate and up in one projection: each half is laid out anew."""
    first, second = split(both, (both.n // 2, both.n // 2))
    return gated(contiguous(first), contiguous(second))


def rope(q: Tensor, k: Tensor, table: Table, copies: bool) -> tuple[Tensor, Tensor]:
    """Queries and keys turned in place, on copies where they are slices; their gradients too (ops/rope.py)."""
    tape = tape_of(q)
    first, second = (tape.new(q.n, q.e), tape.new(k.n, k.e)) if copies else (q, k)

    def back(gq: Tensor, gk: Tensor, _kept: object = (table.cos, table.sin)) -> tuple[Tensor, Tensor]:
        return gq, gk

    node = tape.node((q, k), back, slots=2)
    turned = Tensor(first.storage, q.n, q.e, view=True), Tensor(second.storage, k.n, k.e, view=True)
    for slot, x in enumerate(turned):
        x.node, x.slot = node, slot
    return turned
