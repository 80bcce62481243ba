"""torchtitan's mixture of experts, and prime-rl's: rows are sorted by expert, padded, and weighted in float32.

Source: torchtitan 0.2.0 models/moe/moe.py `MoE.forward`, models/moe/utils.py `_permute` and
distributed/expert_parallel.py; prime-rl trainer/models/layers/moe.py. R = tokens x top_k rows, h and f columns. Frames
name what they have made until they return: the routed rows to the end of the layer. torch.compile makes one kernel of
the gate's operations, and before torchtitan 0.2.1 of the padding and of the weighting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tape.backward import fresh, made
from ..tape.indexing import gather
from ..tape.labels import labelled
from ..tape.matmuls import grouped_linear
from ..tape.ops import add, leaf, mul, scale, to
from ..tape.tape import tape_of
from ..tape.tensor import Parameter, Tensor
from .activation import activation
from .compiled import gated

if TYPE_CHECKING:
    from ..adapters.modules import Linear, Modules
    from ..tape.tape import Tape
    from .dims import LayerDims


@labelled("order of the rows")
def grouped(x: Tensor, weights: Tensor, chosen: Tensor, modules: Modules, dims: LayerDims) -> Tensor:
    """Every row through its experts, weighted and added up.

    Kept for backward: the padded rows (2 R h), both products, silu's output and the product of both (2 R f each), and
    the float32 copy of the experts' output (4 R h).
    """
    tape, count = tape_of(x), dims.rows * dims.experts.top_k
    order = tape.new(count, 8)
    scores = gather(weights, count, tape.new(count, 8))
    rows = gather(x, count * dims.hidden, order)
    y = _experts(rows, modules, dims, tape)
    y = _weighted(y, scores) if dims.experts.weighted_in_graph else to(mul(to(y, 4), scores), x.e)
    result = fresh(tape.new(x.n, x.e), y, order)
    del chosen, rows
    return result


def _weighted(y: Tensor, scores: Tensor) -> Tensor:
    """The float32 product in one kernel: saves both operands as they are; backward makes both gradients."""
    tape, n, e, rows, width = tape_of(y), y.n, y.e, scores.n, scores.e
    result = tape.new(n, e)

    def back(_: Tensor, _kept: object = (y.storage, scores.storage)) -> tuple[Tensor, Tensor]:
        return tape.new(n, e), tape.new(rows, width)

    return made(result, tape.node((y, scores), back))


def _experts(rows: Tensor, modules: Modules, dims: LayerDims, tape: Tape) -> Tensor:
    """Dispatch, padding, three grouped products, and all of it back: an all-to-all each way where ranks divide experts.

    Padding by index copies the rows with one of zeros behind them, then takes them in the kernel's order.
    """
    count, divided = dims.rows * dims.experts.top_k, dims.experts.divided
    moved = _copy(rows) if divided else rows
    padded = moved if dims.experts.weighted_in_graph else _copy(moved)
    del moved
    sorted_rows = gather(padded, padded.n, tape.new(count, 8))
    del padded
    y = _gated(sorted_rows, modules, dims, count)
    del sorted_rows
    back = gather(y, y.n, tape.new(count, 8))
    del y
    back = _copy(back, kept=False)
    return _copy(back) if divided else back


def _copy(x: Tensor, kept: bool = True) -> Tensor:
    """A tensor of x's size whose gradient is one too; without `kept` a view of x (a slice)."""
    tape, n, e = tape_of(x), x.n, x.e
    y = tape.new(n, e) if kept else Tensor(x.storage, n, e, view=True)
    return fresh(y, x)


def _gated(x: Tensor, modules: Modules, dims: LayerDims, count: int) -> Tensor:
    """silu(x w1) * (x w3), then w2; adapters of experts are products of their own beside those."""
    first, second = _pair(x, modules.need("expert_gate_up"), count)
    h = gated(first, second) if dims.compiled else mul(activation(dims.activation)(first), second)
    del first, second
    down = modules.need("expert_down")
    return _adapted(h, down, grouped_linear(h, down.weight, count), count)


@labelled("low-rank product")
def _pair(x: Tensor, both: Linear, count: int) -> tuple[Tensor, Tensor]:
    """The products with w1 and w3, which are parameters of their own: two gradients of x that are added up."""
    tape, e, n, weight = tape_of(x), both.weight.e, x.n, both.weight
    width = weight.n // weight.groups // (n // count) // 2
    outputs = tape.new(count * width, e), tape.new(count * width, e)
    needed = x.node is not None
    kept = (x.storage if weight.trainable else None, weight if needed else None)

    def back(*_: Tensor | None, _kept: object = kept) -> tuple[Tensor | None, Tensor | None]:
        gw = tape.new(weight.n, e) if weight.trainable else None
        gx = tape.new(n, e) if needed else None
        other = tape.new(n, e) if needed else None
        del other
        return gx, gw

    node = tape.node((x, weight), back, slots=2)
    found = [made(y, node, slot) for slot, y in enumerate(outputs)]
    if both.a is None or both.b is None:
        return found[0], found[1]
    return _adapted(x, both, found[0], count, 2), _adapted(x, both, found[1], count, 2)


def _adapted(x: Tensor, module: Linear, base: Tensor, count: int, parts: int = 1) -> Tensor:
    """base + scaling * B A x, as grouped products (prime-rl layers/lora/multi_moe.py); `parts` share the adapter."""
    if module.a is None or module.b is None:
        return base
    rank = max(1, module.a.n // (module.weight.groups * (x.n // count)))
    tape = tape_of(x)
    low = _low_rank(x, module.a, count * rank, parts, tape)
    return add(base, scale(_low_rank(low, module.b, base.n, parts, tape)))


def _low_rank(x: Tensor, weight: Parameter, size: int, parts: int, tape: Tape) -> Tensor:
    """A grouped product with one of an adapter's matrices, narrowed to 16 bits."""
    narrow = to(leaf(tape, weight), 2)
    n, e, wn = x.n, x.e, weight.n // parts
    y = tape.new(size, e)

    def back(_: Tensor, _kept: object = (x.storage, narrow)) -> tuple[Tensor | None, Tensor]:
        gw = tape.new(wn, 2)
        return (tape.new(n, e) if x.node is not None else None, gw)

    return made(y, tape.node((x, narrow), back))
