"""Mixtures of experts as transformers 5 runs them: rows sorted by expert, grouped matmuls.

S = rows x top_k is the number of rows that the experts of a rank see, also under expert parallelism, where a balanced
router sends a rank as many rows as it has (states/imbalance.py says how many more may come). The load-balancing loss
(`output_router_logits`) is not modelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..adapters.linear import merged, project
from ..tape.indexing import gather, repeat, split, topk, total, window
from ..tape.labels import labelled
from ..tape.matmuls import expert_matmul, grouped_linear, linear_wide
from ..tape.ops import (
    add,
    add_to,
    clamp,
    leaf,
    mul,
    scale,
    shift,
    to,
    unary,
)
from ..tape.rows import divide, softmax
from ..tape.tape import tape_of
from ..tape.tensor import Parameter, Tensor
from . import token_choice
from .activation import activation
from .mlp import dense

if TYPE_CHECKING:
    from ..adapters.modules import Linear, Modules
    from ..tape.tape import Tape
    from .dims import LayerDims

PART = "experts"


def feed_forward(x: Tensor, modules: Modules, dims: LayerDims) -> Tensor:
    """Gated (separate or fused gate and up), plain, or a mixture of experts, by the modules that the layer has."""
    if modules.role("expert_gate_up") is None:
        return dense(x, modules, dims, "" if modules.role("down") is not None else "shared_")
    if modules.role("shared_down") is None or _all_rows(dims):
        return routed(x, modules, dims)
    if dims.arch.shared in ("before", "scaled"):
        other = dense(x, modules, dims, "shared_")
        y = routed(x, modules, dims)
        y = scale(y) if dims.arch.shared == "scaled" else y
        other = shared_gate(x, other, modules, dims)
        return add(y, other)
    y = routed(x, modules, dims)
    return add(y, dense(x, modules, dims, "shared_"))


def route(x: Tensor, modules: Modules, dims: LayerDims) -> tuple[Tensor, Tensor]:
    """The chosen experts' weights and their int64 indices, by the router of the model type."""
    kind = dims.arch.router
    router = modules.need("router")
    if kind in ("sigmoid", "softmax_wide"):
        return _wide_router(x, router, dims, kind == "sigmoid")
    if kind == "softmax_forced":
        return _forced_router(x, router, dims)
    if kind == "softmax_float":
        logits = linear_wide(to(x, 4), to(leaf(tape_of(x), router.weight), 4), dims.rows)
    elif router.a is not None and dims.experts.grouped and not tape_of(x).bare:
        weight = merged(router, tape_of(x), dims.autocast or router.weight.e)
        assert not isinstance(weight, Parameter)
        logits = linear_wide(x, weight, dims.rows)
    else:
        logits = project(x, router, dims.rows)
    e = logits.e
    if kind == "sigmoid_late":
        scores = unary(to(logits, 4), save_input=False, save_output=True)
        chosen = tape_of(x).new(dims.rows * dims.experts.top_k, 8)
        values = divide(gather(scores, dims.rows * dims.experts.top_k, chosen), dims.rows)
        return (to(values, e) if dims.arch.weights == "narrow" else values), chosen
    if kind == "softmax_narrow":
        scores = softmax(logits, dims.autocast * 2 or e)
        chosen = tape_of(x).new(dims.rows * dims.experts.top_k, 8)
        return scale(divide(gather(scores, dims.rows * dims.experts.top_k, chosen), dims.rows)), chosen
    if kind == "chosen":
        values, chosen = topk(to(logits, 4) if dims.arch.residual_scale else logits, dims.rows * dims.experts.top_k)
        return to(softmax(values, values.e, fused=True), e), chosen
    probabilities = softmax(logits, 4)
    values, chosen = topk(probabilities, dims.rows * dims.experts.top_k)
    values = divide(values, dims.rows)
    return (to(values, e) if dims.arch.weights == "narrow" else values), chosen


def _wide_router(x: Tensor, router: Linear, dims: LayerDims, sigmoid: bool) -> tuple[Tensor, Tensor]:
    """DeepSeek's: logits from a float32 copy of x, so that copy is saved for the router's gradient."""
    wide = to(x, 4)
    weight = merged(router, tape_of(x), router.weight.e)
    if isinstance(weight, Parameter):
        weight = leaf(tape_of(x), weight)
    logits = linear_wide(wide, to(weight, 4), dims.rows)
    if not sigmoid:
        values, chosen = topk(softmax(logits, 4), dims.rows * dims.experts.top_k)
        return scale(values), chosen
    scores = unary(logits, save_input=False, save_output=True)
    chosen = tape_of(x).new(dims.rows * dims.experts.top_k, 8)
    values = divide(gather(scores, dims.rows * dims.experts.top_k, chosen), dims.rows)
    if dims.arch.weights == "summed" and tape_of(x).autocast:
        values = to(values, 4)
    return scale(values), chosen


def _forced_router(x: Tensor, router: Linear, dims: LayerDims) -> tuple[Tensor, Tensor]:
    """ERNIE's: all in float32, autocast or not; the weights are divided by their clamped sum."""
    tape = tape_of(x)
    autocast, tape.autocast = tape.autocast, 0
    logits = linear_wide(to(x, 4), to(leaf(tape, router.weight), 4), dims.rows)
    tape.autocast = autocast
    probabilities = softmax(logits, 4)
    chosen = tape.new(dims.rows * dims.experts.top_k, 8)
    values = gather(probabilities, dims.rows * dims.experts.top_k, chosen)
    return to(divide(values, dims.rows), x.e), chosen


def routed(x: Tensor, modules: Modules, dims: LayerDims) -> Tensor:
    """`grouped_mm_experts_forward` (integrations/moe.py).

    Saved: the sorted input rows, gate and up, act(gate), their product, the unweighted output. Grouped matmuls are
    not in autocast's lists: they run in the experts' own width.
    """
    if _all_rows(dims):
        return _every_expert(x, modules, dims)
    weights, chosen = route(x, modules, dims)
    if dims.experts.token_choice:
        return token_choice.grouped(x, weights, chosen, modules, dims)
    return grouped(x, weights, chosen, modules, dims)


def _all_rows(dims: LayerDims) -> bool:
    """Whether each expert gets every row: Llama 4's in Transformers. Frameworks with their own experts route them."""
    return dims.arch.gate == "dense" and not dims.experts.routes_rows


def _every_expert(x: Tensor, modules: Modules, dims: LayerDims) -> Tensor:
    """Llama 4: every expert sees every row, times its score (modeling_llama4.py Llama4TextMoe)."""
    gate_up, down = modules.need("expert_gate_up").weight, modules.need("expert_down").weight
    count = gate_up.groups
    logits = project(x, modules.need("router"), dims.rows)
    values, chosen = topk(logits, dims.rows * dims.experts.top_k)
    spread = gather(values, logits.n, chosen)
    del values
    scores = to(unary(to(spread, 4), save_input=False, save_output=True), spread.e)
    rows = repeat(x, x.n * count)
    rows = mul(rows, scores)
    both = expert_matmul(rows, gate_up, dims.rows)
    first, second = split(both, (both.n // 2, both.n // 2))
    out = mul(second, activation(dims.activation)(first))
    del both, first, second
    out = expert_matmul(out, down, dims.rows)
    other = dense(x, modules, dims, "shared_")
    summed = total(out, x.n)
    del logits
    return add_to(other, summed)


@labelled("order of the rows")
def grouped(x: Tensor, weights: Tensor, chosen: Tensor, modules: Modules, dims: LayerDims) -> Tensor:
    """Every row through its experts, weighted and summed."""
    tape = tape_of(x)
    count = dims.rows * dims.experts.top_k
    order, perm = tape.new(count, 8), tape.new(count, 8)
    rows = gather(x, count * dims.hidden, tape.new(count, 8))
    scores = gather(weights, count, perm)
    down = _weight(modules.need("expert_down"), dims, tape) if dims.experts.copied else None
    weight = _weight(modules.need("expert_gate_up"), dims, tape, down)
    bias = _bias(modules, "experts.gate_up_proj_bias", weight, order, count)
    out = grouped_linear(rows, weight, count, bias)
    out = _gate(out, dims)
    weight = down if down is not None else _weight(modules.need("expert_down"), dims, tape)
    bias = _bias(modules, "experts.down_proj_bias", weight, order, count)
    out = grouped_linear(out, weight, count, bias)
    weighted = mul(out, scores)
    inverse = tape.new(count, 8)
    weighted = gather(weighted, weighted.n, inverse)
    result = to(total(weighted, x.n), x.e)
    del order, chosen, bias, weight, down
    return result


def _weight(
    module: Linear, dims: LayerDims, tape: Tape, beside: Tensor | Parameter | None = None
) -> Tensor | Parameter:
    """The experts' weight; before transformers 5 each expert was a Linear, which autocast narrows.

    `beside` is what the loop's other products still save when the first of them gets its gradient.
    """
    weight = merged(module, tape, module.weight.e)
    if dims.experts.indexed and isinstance(weight, Parameter) and dims.autocast in (0, weight.e):
        return _indexed(weight, dims, tape, beside)
    if dims.autocast and not dims.experts.grouped and isinstance(weight, Parameter):
        groups = weight.groups
        cast = tape.cast(weight, dims.autocast)
        if cast is not weight and not isinstance(cast, Parameter):
            cast.groups = groups
        return cast
    return weight


def _indexed(weight: Parameter, dims: LayerDims, tape: Tape, beside: Tensor | Parameter | None) -> Tensor:
    """Each expert's weight taken out of all: n elements where they are copied, and in backward n of the sum so far
    beside n of the expert in hand (transformers 4.55 to 4.57 modeling_gpt_oss.py `GptOssExperts.forward`).
    """
    n, e = weight.n, weight.e
    y = tape.new(n, e) if dims.experts.copied else Tensor(tape.nothing, n, e)

    def back(gradient: Tensor, _kept: object = (y.storage, beside)) -> tuple[Tensor]:
        tape.scratch(n * e)
        return (gradient,)

    y.node = tape.node((weight,), back, saves=0)
    y.groups = weight.groups
    return y


def _bias(modules: Modules, name: str, weight: Tensor | Parameter, index: Tensor, rows: int) -> Tensor | None:
    """The experts' bias, gathered for every row."""
    module = modules.leaf(name)
    if module is None:
        return None
    return gather(leaf(tape_of(index), module.weight), rows * (module.weight.n // weight.groups), index)


def _gate(both: Tensor, dims: LayerDims) -> Tensor:
    if dims.arch.gate == "clamped":
        return _clamped(both)
    if dims.arch.gate == "plain":
        return activation(dims.activation)(both)
    first, second = split(both, (both.n // 2, both.n // 2))
    return mul(activation(dims.activation)(first), second)


def _clamped(both: Tensor) -> Tensor:
    """gpt-oss: gate and up clamped, (up + 1) * gate * sigmoid(alpha * gate)."""
    gate, up = window(both, both.n // 2), window(both, both.n // 2)
    gate = clamp(gate)
    up = clamp(up)
    glu = mul(gate, unary(scale(gate), save_input=False, save_output=True))
    return mul(shift(up), glu)


def shared_gate(x: Tensor, output: Tensor, modules: Modules, dims: LayerDims) -> Tensor:
    """Qwen2-MoE: the shared expert's output times a sigmoid gate of one column."""
    gate = modules.leaf("shared_expert_gate")
    if gate is None:
        return output
    return mul(unary(project(x, gate, dims.rows), save_input=False, save_output=True), output)
