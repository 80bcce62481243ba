"""Kimi delta attention: a gated delta rule with a decay for every channel (Kimi-Linear, Ling 3.0).

What runs is the composite path of transformers (`chunk_kimi_delta_attention`, modeling_kimi_linear.py 5.23) unless the
job's versions name `flash-linear-attention`: all in float32, in chunks of 64 tokens. It spreads the decays between all
pairs of a chunk's tokens over the channels, 64 x head dim numbers for every head and token; three tensors of that size
are kept for backward. The kernels (fla/ops/kda/chunk.py) keep q, k, v, the decays and two matrices of a chunk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...adapters.linear import project
from ...tape.backward import made
from ...tape.indexing import assigned, cat, padded, split, window
from ...tape.matmuls import product
from ...tape.ops import (
    add,
    contiguous,
    divided,
    exp,
    leaf,
    mul,
    power,
    rsqrt,
    scale,
    shift,
    spread_mul,
    sub,
    summed,
    to,
    unary,
    unpadded,
    where,
)
from ...tape.rows import mean
from ...tape.tape import tape_of
from .convolution import causal_convolution
from .gated_delta_net import CHUNK
from .ssm import masked, summed_up

if TYPE_CHECKING:
    from ...adapters.modules import Linear, Modules
    from ...tape.tensor import Tensor
    from ..dims import LayerDims

PART = "Kimi delta rule"


class Sizes(NamedTuple):
    """Heads and their width, that of keys and values alike, of one call."""

    rows: int
    batch: int
    length: int
    heads: int
    head: int

    @property
    def chunks(self) -> int:
        """Chunks of a sequence."""
        return -(-self.length // CHUNK)

    @property
    def cells(self) -> int:
        """Heads of all rows, with every sequence filled up to whole chunks."""
        return self.batch * self.chunks * CHUNK * self.heads


def kimi_delta(x: Tensor, modules: Modules, dims: LayerDims) -> Tensor:
    """Projections and their convolution, the decays, the rule, a norm gated by a sigmoid, the last projection."""
    first, second, third = (modules.require(name) for name in ("q_proj", "k_proj", "v_proj"))
    convolution, rates, last = (modules.require(name) for name in ("conv1d", "b_proj", "o_proj"))
    rows, width, heads = dims.rows, third.out, rates.out
    at = Sizes(rows, dims.batch, dims.length, heads, width // heads)
    x = unpadded(x, rows, dims.job.padded)
    mixed = cat([project(x, module, rows) for module in (first, second, third)])
    mixed = causal_convolution(mixed, convolution, dims)
    q, k, v = split(mixed, (rows * width, rows * width, rows * width))
    g = _decays(x, modules, dims)
    beta = unary(project(x, rates, rows), save_input=False, save_output=True)
    y = (fused if dims.mixer.kernels else chunked)(q, k, v, g, beta, at)
    gate = _through(x, modules, "g", rows)
    y = _gated(y, gate, modules.require("o_norm"), rows * heads)
    return project(y, last, rows)


def _through(x: Tensor, modules: Modules, name: str, rows: int) -> Tensor:
    """One projection, or two through a narrow middle."""
    whole = modules.leaf(f"{name}_proj")
    if whole is not None:
        return project(x, whole, rows)
    return project(project(x, modules.require(f"{name}_a_proj"), rows), modules.require(f"{name}_b_proj"), rows)


def _decays(x: Tensor, modules: Modules, dims: LayerDims) -> Tensor:
    """-exp(A) softplus(f(x) + bias), written out in Kimi-Linear; Ling's is bounded: c sigmoid(exp(A) (f(x) + bias))."""
    tape, e = tape_of(x), x.e
    gate = _through(x, modules, "f", dims.rows)
    bias, decays = leaf(tape, modules.require("dt_bias").weight), leaf(tape, modules.require("A_log").weight)
    if modules.leaf("f_a_proj") is not None:
        g = add(to(gate, 4), to(bias, 4))
        rate = unary(to(decays, 4), save_input=False, save_output=True)
        inner = shift(unary(g, save_input=False, save_output=True))
        soft = where(g, unary(inner))
        return mul(scale(rate), soft)
    g = add(to(gate, 4), bias)
    rate = unary(decays, save_input=False, save_output=True)
    if dims.mixer.bounded_decay:
        return to(scale(unary(mul(rate, g), save_input=False, save_output=True)), e)
    return to(mul(scale(rate), unary(g)), e)


def chunked(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, at: Sizes) -> Tensor:
    """The composite path: a triangular inverse row by row inside each chunk, a running state between chunks."""
    tape, e = tape_of(q), q.e
    q, k, v, beta, g = (to(contiguous(x), 4) for x in (q, k, v, beta, g))
    q = _unit(q, at)
    k = _unit(k, at)
    cells, wide = at.cells, at.cells * at.head
    q = scale(padded(q, wide))
    k, v, g, beta = padded(k, wide), padded(v, wide), padded(g, wide), padded(beta, cells)
    v_beta = mul(v, beta)
    k_beta = mul(k, beta)
    g = summed_up(g)
    pairs, whole = cells * CHUNK, cells * CHUNK * at.head
    decays = exp(masked(sub(g, g, whole), whole))
    inverse = scale(masked(_over_channels(spread_mul(k_beta, k, whole), decays, pairs), pairs))
    inverse = _inverted(inverse, cells // CHUNK)
    inverse = shift(inverse)
    v = product(inverse, v_beta, wide)
    k_total = product(inverse, mul(k_beta, exp(g)), wide)
    state_n = at.batch * at.heads * at.head * at.head
    state = tape.new(state_n, 4)
    out = tape.new(wide, 4)
    part = at.batch * at.heads * CHUNK * at.head
    for _ in range(at.chunks):
        query, key, value, decay = window(q, part), window(k, part), window(v, part), window(g, part)
        across = product(mul(query, exp(decay)), state, part)
        pair = spread_mul(query, key, part * CHUNK)
        inside = masked(_over_channels(pair, window(decays, part * CHUNK), part // at.head * CHUNK), 0)
        del pair
        before = product(window(k_total, part), state, part)
        fresh = sub(value, before)
        out = assigned(out, add(across, product(inside, fresh, part)))
        kept = mul(state, exp(window(decay, part // CHUNK)))
        moved = mul(key, exp(sub(window(decay, part // CHUNK), decay)))
        state = add(kept, product(moved, fresh, state_n))
        del kept, moved
    wanted = at.rows * at.heads * at.head
    out = out if out.n == wanted else window(out, wanted)
    return to(contiguous(out), e)


def _over_channels(pair: Tensor, decays: Tensor, n: int) -> Tensor:
    """Products of all pairs of a chunk's tokens, weighted channel by channel, summed to `n` elements."""
    return summed(mul(pair, decays), n)


def _inverted(x: Tensor, chunks: int) -> Tensor:
    """Forward substitution: row i takes what it gives of the rows above, i + i^2 numbers a chunk that are kept."""
    for i in range(1, CHUNK):
        row = contiguous(window(window(x, chunks * CHUNK), chunks * i))
        above = contiguous(window(window(x, chunks * CHUNK * i), chunks * i * i))
        given = summed(mul(row, above), chunks * i)
        x = assigned(x, add(row, given))
    return x


def fused(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, at: Sizes) -> Tensor:
    """The kernels: saved are q and k (normalised), v, g and its sums, beta and two matrices of each chunk.

    Backward makes the chunks' states and four tensors of v's size again, then float32 gradients.
    """
    tape, e, n = tape_of(q), q.e, v.n
    states = at.batch * at.heads * at.chunks * at.head * at.head
    unit = tape.new(n, e), tape.new(n, e), tape.new(2 * at.rows * at.heads, 4)
    inner = tape.new(n, 4), tape.new(at.cells * CHUNK, e), tape.new(at.cells * CHUNK, e)
    tape.scratch(states * e + 5 * n * e)
    y = tape.new(n, e)
    kept = (*unit, *inner, v.storage, g.storage, beta.storage)
    sizes = [(x.n, x.e) for x in (q, k, v, g, beta)]

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor, ...]:
        again = tape.new(states, e), tape.new(5 * n, e), tape.new(4 * n, 4)
        result = tuple(tape.new(size, width) for size, width in sizes)
        del again
        return result

    return made(y, tape.node((q, k, v, g, beta), back))


def _gated(x: Tensor, gate: Tensor, module: Linear, rows: int) -> Tensor:
    """weight * normalised(x) times sigmoid(gate), all in float32, then back."""
    e = x.e
    wide = to(x, 4)
    wide = mul(wide, rsqrt(shift(mean(power(wide), rows))))
    wide = mul(to(leaf(tape_of(x), module.weight), 4), wide)
    wide = mul(wide, unary(to(gate, 4), save_input=False, save_output=True))
    return to(wide, e)


def _unit(x: Tensor, at: Sizes) -> Tensor:
    """x over its length, head by head."""
    length = unary(shift(summed(mul(x, x), at.rows * at.heads)), save_input=False, save_output=True)
    return divided(x, length)
