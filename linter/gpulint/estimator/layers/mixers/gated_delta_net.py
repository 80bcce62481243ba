"""Gated delta rule: the linear attention of Qwen3-Next and Qwen3.5, in chunks of tokens.

What runs is the composite path of transformers (`torch_chunk_gated_delta_rule`, modeling_qwen3_next.py 5.23) unless the
job's versions name `flash-linear-attention`: all in float32, the state of every chunk is kept for backward. Its kernels
save q, k, v, g, beta and one state a chunk instead (fla/ops/gated_delta_rule/chunk.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...adapters.linear import project
from ...tape.backward import made
from ...tape.indexing import assigned, cat, padded, repeat, split, window
from ...tape.matmuls import product, solve
from ...tape.ops import (
    add,
    contiguous,
    exp,
    leaf,
    mul,
    power,
    relayout,
    rsqrt,
    scale,
    shift,
    sub,
    summed,
    to,
    unary,
    unpadded,
)
from ...tape.rows import mean
from ...tape.tape import tape_of
from ...tape.tensor import Tensor
from .convolution import causal_convolution

if TYPE_CHECKING:
    from ...adapters.modules import Linear, Modules
    from ...tape.tape import Tape
    from ..dims import LayerDims

PART = "delta rule"

CHUNK = 64
"""`chunk_size` of the composite path and of the kernels."""


class Sizes(NamedTuple):
    """Heads and widths of one call; queries and keys have `key_dim` features over all their heads."""

    rows: int
    batch: int
    length: int
    heads: int
    value_head: int
    key_head: int
    key_dim: int

    @property
    def tokens(self) -> int:
        """Rows with every sequence filled up to whole chunks."""
        return self.batch * self.chunks * CHUNK

    @property
    def chunks(self) -> int:
        """Chunks of a sequence."""
        return -(-self.length // CHUNK)


def gated_delta(x: Tensor, modules: Modules, dims: LayerDims) -> Tensor:
    """Projections, a short causal convolution over q, k and v, the delta rule, a gated norm and the last projection."""
    if modules.leaf("in_proj_qkvz") is None and modules.leaf("in_proj_qkv") is None:
        return _separate(x, modules, dims)
    convolution, last, norm = (
        modules.require("conv1d"),
        modules.require("out_proj"),
        modules.require("linear_attn.norm"),
    )
    decays, shifts = modules.require("A_log"), modules.require("dt_bias")
    heads, values = decays.weight.n, last.weight.n // last.out
    keys = (convolution.out - values) // 2
    at = Sizes(dims.rows, dims.batch, dims.length, heads, values // heads, _key_head(dims, values), keys)
    x = unpadded(x, dims.rows, dims.job.padded)
    mixed, z, b, a, whole = _projected(x, modules, at)
    mixed = causal_convolution(mixed, convolution, dims)
    q, k, v = split(mixed, (dims.rows * keys, dims.rows * keys, dims.rows * values))
    beta = unary(b, save_input=False, save_output=True)
    factor = _rates(decays, tape_of(x))
    g = mul(unary(add(to(a, 4), leaf(tape_of(x), shifts.weight))), factor)
    y = (fused if dims.mixer.kernels else chunked)(q, k, v, g, beta, at)
    y = gated_norm(y, z, norm, dims.rows * heads)
    del whole
    return project(y, last, dims.rows)


def _rates(decays: Linear, tape: Tape) -> Tensor:
    return scale(exp(to(leaf(tape, decays.weight), 4)))


def _separate(x: Tensor, modules: Modules, dims: LayerDims) -> Tensor:
    """OLMo Hybrid: a projection each for q, k, v, a, b and the gate, which comes last; beta may reach 2."""
    names = ("q_proj", "k_proj", "v_proj", "b_proj", "a_proj", "g_proj", "o_proj", "conv1d", "o_norm")
    first, second, third, fourth, fifth, sixth, last, convolution, norm = (modules.require(name) for name in names)
    decays, shifts = modules.require("A_log"), modules.require("dt_bias")
    tape, rows, heads, keys = tape_of(x), dims.rows, decays.weight.n, first.out
    at = Sizes(rows, dims.batch, dims.length, heads, third.out // heads, _key_head(dims, third.out), keys)
    x = unpadded(x, rows, dims.job.padded)
    mixed = cat([project(x, module, rows) for module in (first, second, third)])
    mixed = causal_convolution(mixed, convolution, dims)
    q, k, v = split(mixed, (rows * keys, rows * keys, rows * third.out))
    beta = unary(project(x, fourth, rows), save_input=False, save_output=True)
    if dims.mixer.negative:
        beta = scale(beta)
    factor = _rates(decays, tape)
    g = mul(factor, unary(add(to(project(x, fifth, rows), 4), leaf(tape, shifts.weight))))
    y = (fused if dims.mixer.kernels else chunked)(q, k, v, g, beta, at)
    gate = project(x, sixth, rows)
    y = gated_norm(y, gate, norm, rows * heads)
    return project(y, last, rows)


def _key_head(dims: LayerDims, values: int) -> int:
    """A state has heads x key head dim x value head dim elements; `values` = heads x value head dim on this rank."""
    return dims.mixer.state // (values * dims.job.parallelism.tensor)


def _projected(x: Tensor, modules: Modules, at: Sizes) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """q, k and v in one tensor, the gate z, b and a of each head, and the whole that Qwen3-Next takes them from."""
    names = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")
    found = [modules.leaf(name) for name in names]
    separate = [project(x, module, at.rows) for module in found if module is not None]
    if len(separate) == len(names):
        return separate[0], separate[1], separate[2], separate[3], None
    first, second = modules.require("in_proj_qkvz"), modules.require("in_proj_ba")
    whole, pair = project(x, first, at.rows), project(x, second, at.rows)
    keys, values, heads = at.rows * at.key_dim, at.rows * at.heads * at.value_head, at.rows * at.heads
    q, k, v, z = split(whole, (keys, keys, values, values))
    b, a = split(pair, (heads, heads))
    grouped = at.heads * at.key_head != at.key_dim
    if grouped:
        v, z = contiguous(v), contiguous(z)
    b, a = contiguous(b), contiguous(a)
    q, k, v = contiguous(q), contiguous(k), v if grouped else contiguous(v)
    return cat((q, k, v)), z, b, a, whole


def chunked(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, at: Sizes) -> Tensor:
    """The composite path: inside each chunk a triangular system, between chunks a running state.

    Per chunk backward makes a gradient of the whole of every tensor that the chunk took its part of. Operands that are
    float32 already stay views with heads behind tokens, which products lay out anew, unless padding to whole chunks
    has done so.
    """
    tape, e = tape_of(q), q.e
    wide_n = at.rows * at.heads * at.key_head
    if q.n != wide_n:
        q = repeat(q, wide_n)
        k = repeat(k, wide_n)
    q, k, v, beta, decay = to(q, 4), to(k, 4), to(v, 4), to(beta, 4), g
    q = _unit(q, at)
    k = _unit(k, at)
    q = scale(q)
    keys, values, scores = at.key_head, at.value_head, at.tokens * at.heads
    q, k, v = padded(q, scores * keys), padded(k, scores * keys), padded(v, scores * values)
    beta, decay = padded(beta, scores), padded(decay, scores)
    v_beta = relayout(mul(v, beta))
    k_beta = relayout(mul(k, beta))
    upper = tape.new(CHUNK * CHUNK, 1)
    total = scale(decay)
    pairs = scores * CHUNK
    between = sub(total, total, pairs)
    between = scale(between)
    between = unary(between, save_input=False, save_output=True)
    loose = e == 4 and at.length % CHUNK == 0
    several = loose and at.batch > 1
    system = mul(product(_laid(k_beta, loose), _laid(k, loose), pairs), between)
    inside = mul(product(_laid(q, loose), _laid(k, loose), pairs), between)
    decayed = mul(k_beta, exp(total))
    new_values = solve(system, v_beta)
    k_total = solve(system, decayed)
    state = tape.new(at.batch * at.heads * keys * values, 4)
    out = tape.new(new_values.n, 4)
    q = mul(q, exp(total))
    k = mul(k, exp(sub(window(total, total.n // CHUNK), total)))
    chunk_decay = exp(window(total, total.n // CHUNK))
    part = at.batch * at.heads * CHUNK
    for _ in range(at.chunks):
        fresh = sub(window(new_values, part * values), product(window(k_total, part * keys), state, part * values))
        across = product(_laid(window(q, part * keys), several), state, part * values)
        out = assigned(out, add(across, product(window(inside, part * CHUNK), fresh, part * values)))
        kept = mul(state, window(chunk_decay, part // CHUNK))
        state = add(kept, product(_laid(window(k, part * keys), several), fresh, state.n))
        del kept
    del upper
    tape.store(4 * state.n)
    wanted = at.rows * at.heads * values
    out = contiguous(out)
    out = out if out.n == wanted else window(out, wanted)
    return to(out, e) if e < 4 else contiguous(out)


def fused(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, at: Sizes) -> Tensor:
    """flash-linear-attention's kernels: saved are q, k (normalised), v, g, beta and the triangular inverse of a chunk.

    Backward makes the states of all chunks and the new values again, then one gradient of each operand.
    """
    tape, e = tape_of(q), q.e
    states = at.batch * at.heads * at.chunks * at.key_head * at.value_head
    values = v.n
    inverse = tape.new(at.tokens * at.heads * CHUNK, e)
    total = tape.new(g.n, 4)
    norms = tape.new(2 * at.rows * at.heads, 4)
    tape.scratch(states * e + 3 * values * e)
    y = tape.new(values, e)
    unit_q, unit_k = tape.new(q.n, e), tape.new(k.n, e)
    kept = (unit_q.storage, unit_k.storage, v.storage, total.storage, beta.storage, inverse.storage, norms.storage)
    sizes = [(x.n, x.e) for x in (q, k, v, g, beta)]

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor, ...]:
        again = tape.new(2 * states, e), tape.new(4 * values, e)
        result = tuple(tape.new(n, width) for n, width in sizes)
        del again
        return result

    return made(y, tape.node((q, k, v, g, beta), back))


def gated_norm(x: Tensor, gate: Tensor, module: Linear, rows: int) -> Tensor:
    """weight * normalised(x in float32) in x's width, times silu(gate in float32), then back."""
    e = x.e
    wide = to(x, 4)
    variance = mean(power(wide), rows)
    wide = mul(wide, rsqrt(shift(variance)))
    wide = mul(to(wide, e), module.weight)
    wide = mul(wide, unary(to(gate, 4)))
    return to(wide, e)


def _unit(x: Tensor, at: Sizes) -> Tensor:
    """x over its length, head by head."""
    inverse = rsqrt(shift(summed(mul(x, x), at.rows * at.heads)))
    return mul(x, inverse)


def _laid(x: Tensor, copy: bool) -> Tensor:
    return contiguous(x) if copy else x
