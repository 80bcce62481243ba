"""Mixtures of experts as transformers 5 runs them: rows sorted by expert, grouped matmuls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .activation import activation
from .adapters import project
from .ops import gather, grouped_linear, mul, softmax, split, to, topk, total

if TYPE_CHECKING:
    from .modules import Modules
    from .setting import Setting
    from .tape import Tensor


def experts(x: Tensor, modules: Modules, s: Setting) -> Tensor:
    """Router, then the chosen experts' rows through grouped matmuls, weighted and summed back."""
    weights, chosen = route(x, modules, s)
    return routed(x, weights, chosen, modules, s)


def route(x: Tensor, modules: Modules, s: Setting) -> tuple[Tensor, Tensor]:
    """Mixtral's router: softmax in float32 over the logits, top k, normalised."""
    logits = project(x, modules.need("router"), s.rows)
    probabilities = softmax(to(logits, 4), 4)
    values, chosen = topk(probabilities, s.rows * s.top_k)
    return values, chosen


def routed(x: Tensor, weights: Tensor, chosen: Tensor, modules: Modules, s: Setting) -> Tensor:
    """`grouped_mm_experts_forward` (integrations/moe.py): S = rows x top_k rows through both expert matmuls.

    Saved: the sorted input rows, gate and up, act(gate), their product, the unweighted output. Grouped matmuls are
    not in autocast's lists: they run in the experts' own width.
    """
    tape = x.storage.tape
    count = s.rows * s.top_k
    gate_up, down = modules.need("expert_gate_up"), modules.need("expert_down")
    order = tape.new(count, 8)
    perm = tape.new(count, 8)
    source = tape.new(count, 8)
    rows = gather(x, count * s.hidden, source)
    del source
    scores = gather(weights, count, perm)
    both = grouped_linear(rows, gate_up.weight, count)
    first, second = split(both, (both.n // 2, both.n // 2))
    del both
    out = mul(activation(s.activation)(first), second)
    del first, second
    out = grouped_linear(out, down.weight, count)
    weighted = mul(out, scores)
    inverse = tape.new(count, 8)
    weighted = gather(weighted, weighted.n, inverse)
    result = to(total(weighted, x.n), x.e)
    del order, chosen
    return result


