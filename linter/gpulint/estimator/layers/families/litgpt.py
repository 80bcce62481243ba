"""LitGPT's decoder layer and LoRA.

One projection for q, k and v; rotary embedding in float32; keys and values repeated for every query head; heads first
in memory. Source: Lightning-AI/litgpt 0.5, litgpt/model.py, litgpt/lora.py.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from ....models.llama_adapter import PROMPT
from ...adapters.linear import project, rescaled
from ...adapters.unadapted import packed
from ...estimate import NotEstimable
from ...tape.backward import fresh, made
from ...tape.indexing import cat, repeat, split, window
from ...tape.matmuls import linear
from ...tape.ops import add, dropout, mul, scale, to
from ...tape.tape import tape_of
from ...tape.tensor import Parameter, Tensor
from ..activation import activation
from ..attention.kernels import attend, efficient
from ..attention.rope import rotated
from ..mlp import dense

if TYPE_CHECKING:
    from ...adapters.modules import Linear, Modules
    from ..attention.heads import Heads
    from ..attention.rope import Table
    from ..dims import LayerDims
    from ..layer import Layer

PARALLEL = frozenset({"parallel", "parallel_residual", "parallel_norms", "falcon"})
"""Orders of Transformers that LitGPT's Block runs with `parallel_residual`."""


def block(layer: Layer, x: Tensor) -> Tensor:
    """Block.forward: norms, attention's output and the residual keep their names to the end."""
    h = layer.norm(x, 0)
    branch = _attention(h, layer)
    branch = layer.norm(branch, 1) if layer.dims.arch.norms[1] else branch
    if layer.dims.arch.order in PARALLEL:
        two = layer.modules.leaf(layer.dims.arch.norms[2]) if layer.dims.arch.norms[2] else None
        h = layer.norm(x, 2) if two is not None else h
        x = add(branch, x)
    else:
        x = add(branch, x)
        h = layer.norm(x, 2)
    other = _mlp(h, layer)
    other = layer.norm(other, 3) if layer.dims.arch.norms[3] else other
    return add(other, x)


def _mlp(x: Tensor, layer: Layer) -> Tensor:
    """Gate and up are apart, also where the checkpoint has them in one."""
    fused = layer.modules.role("gate_up")
    if fused is None:
        return dense(x, layer.modules, layer.dims, "")
    gate, up, rows = halved(fused), halved(fused), layer.dims.rows
    product = mul(activation(layer.dims.activation)(project(x, gate, rows)), project(x, up, rows))
    return project(product, layer.modules.need("down"), rows)


def halved(whole: Linear) -> Linear:
    """A Linear of half the rows, with an adapter of its own."""
    half = copy(whole)
    half.weight = Parameter(whole.weight.n // 2, whole.weight.e, whole.weight.trainable)
    if whole.b is not None:
        half.b = Parameter(whole.b.n // 2, whole.b.e, True)
    if whole.scale is not None and whole.shift is not None:
        half.scale = Parameter(whole.scale.n // 2, whole.scale.e, True)
        half.shift = Parameter(whole.shift.n // 2, whole.shift.e, True)
    return half


def _attention(x: Tensor, layer: Layer) -> Tensor:
    dims, at, modules = layer.dims, layer.heads, layer.modules
    qkv = _projected(x, modules, dims, at)
    q_size, k_size = dims.rows * at.heads * at.head_dim, dims.rows * at.kv_heads * at.head_dim
    q, k, v = split(qkv, (q_size, k_size, k_size))
    if layer.rope_type != "none":
        q, k = _roped(q, layer.table), _roped(k, layer.table)
    if at.heads != at.kv_heads:
        k, v = repeat(k, q.n), repeat(v, q.n)
    mask = layer.mask if at.softcap else None
    y = attend("eager" if at.softcap else "sdpa", q, k, v, mask, at._replace(kv_heads=at.heads, laid_out=False))
    tape_of(x).returned = None
    gate = modules.leaf("gating_factor")
    if gate is not None:
        y = add(y, mul(_prompted(q, at), gate.weight))
    return project(y, modules.need("o"), dims.rows)


def _prompted(q: Tensor, at: Heads) -> Tensor:
    """Attention of q to the prompt, all of which every token sees: a mask of ones keeps it from the flash kernel."""
    tape = tape_of(q)
    keys = Tensor(tape.nothing, at.heads * PROMPT * at.head_dim, q.e)
    mask = tape.new(at.length * PROMPT, 1)
    return efficient(q, keys, keys, mask, at._replace(keys=PROMPT))


def _roped(x: Tensor, table: Table) -> Tensor:
    """Products with float32 cos and sin, back in x's width, joined with the rest of each head, heads first."""
    rest = x.n - x.n * table.part // table.whole
    first = to(rotated(window(x, x.n - rest), table), x.e)
    y = cat((first, window(x, rest)) if rest else (first,))
    y.heads_first = True
    return y


def _projected(x: Tensor, modules: Modules, dims: LayerDims, at: Heads) -> Tensor:
    """The projection of q, k and v, and LoRAQKVLinear's update: low rank where enabled, zeros elsewhere."""
    parts = [found for name in ("qkv", "q", "k", "v") if (found := modules.role(name)) is not None]
    if not parts:
        raise NotEstimable("LitGPT has no layers without attention")
    base = _joined(parts)
    pretrained = packed(x, base, dims.rows) if base.packed else linear(x, base.weight, dims.rows, base.bias)
    if base.scale is not None:
        return rescaled(pretrained, base)
    enabled = _enabled(parts, dims, at)
    if not enabled:
        return pretrained
    adapter = next(part for part in parts if part.a is not None)
    assert adapter.a is not None
    width = x.n // dims.rows
    rank = adapter.a.n // width
    a = Parameter(rank * len(enabled) * width, adapter.a.e, True)
    low = linear(dropout(x, adapter.dropout), a, dims.rows)
    updates = _convolved(low, [rank * out for out in enabled], [dims.rows * out for out in enabled], at)
    if len(enabled) < 3:
        updates = _padded(updates, pretrained.n, sum(enabled))
    return add(pretrained, scale(updates))


def _joined(parts: list[Linear]) -> Linear:
    """One Linear of all parts' rows."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    joined = copy(first)
    joined.weight = Parameter(sum(part.weight.n for part in parts), first.weight.e, first.weight.trainable)
    biases = [part.bias for part in parts if part.bias is not None]
    joined.bias = Parameter(sum(bias.n for bias in biases), biases[0].e, biases[0].trainable) if biases else None
    if first.scale is not None:
        out = sum(part.out for part in parts)
        joined.scale, joined.shift = Parameter(out, first.scale.e, True), Parameter(out, first.scale.e, True)
    return joined


def _enabled(parts: list[Linear], dims: LayerDims, at: Heads) -> list[int]:
    """Rows of the parts of q, k, v that are adapted; of a fused projection those that the job's targets name."""
    sizes = (at.heads * at.head_dim, at.kv_heads * at.head_dim, at.kv_heads * at.head_dim)
    if len(parts) == 3:
        return [size for size, part in zip(sizes, parts, strict=True) if part.a is not None]
    if parts[0].a is None:
        return []
    named = [size for size, targeted in zip(sizes, dims.prompt.lora_parts, strict=True) if targeted]
    return named or list(sizes)


def _convolved(low: Tensor, weights: list[int], outs: list[int], at: Heads) -> Tensor:
    """The grouped conv1d of LoRAQKVLinear: one for all parts, or one for each and a copy where their heads differ."""
    if at.heads == at.kv_heads:
        return _convolution(low, sum(weights), sum(outs))
    pieces = split(low, [low.n // len(outs)] * len(outs))
    return cat([_convolution(*each) for each in zip(pieces, weights, outs, strict=True)])


def _convolution(low: Tensor, weight: int, out: int) -> Tensor:
    tape, n, e = tape_of(low), low.n, low.e
    b = Parameter(weight, e, True)
    y = tape.new(out, e)

    def back(_: Tensor, _kept: object = low.storage) -> tuple[Tensor, Tensor]:
        return tape.new(n, e), tape.new(weight, e)

    return made(y, tape.node((low, b), back))


def _padded(x: Tensor, n: int, columns: int) -> Tensor:
    """`zero_pad`: index_copy into zeros; it saves its source and the int64 index of the columns."""
    tape = tape_of(x)
    return fresh(tape.new(n, x.e), x, (x.storage, tape.new(columns, 8)))
