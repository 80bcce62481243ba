"""Mamba-2 mixers: Nemotron-H, Granite 4, Bamba, Falcon-H1, Zamba2, Mamba-2.

What runs is the composite path of transformers (`mamba2_chunk_scan`, the same text in every modelling file of 5.23)
unless the job's versions name `mamba-ssm`: a quadratic part inside each chunk, one state a chunk between them, all in
float32. Its five contractions were sums of products written out before 5.18 (wheels 4.45.2 to 5.18.0), which generation
counts; what trains on such a release has the kernels, or no memory for many times as much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ....upstream.transformers import EINSUM_SCAN, NAMED_PRODUCT
from ...adapters.linear import project
from ...tape.backward import fresh, made
from ...tape.indexing import cat, padded, repeat, split, window
from ...tape.labels import labelled
from ...tape.matmuls import einsum
from ...tape.ops import (
    add,
    clamp,
    contiguous,
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
    view,
)
from ...tape.rows import mean
from ...tape.tape import tape_of
from .convolution import causal_convolution

if TYPE_CHECKING:
    from ...adapters.modules import Linear, Modules
    from ...tape.tape import Tape
    from ...tape.tensor import Tensor
    from ..dims import LayerDims

PART = "state-space mixer"


class Sizes(NamedTuple):
    """Heads, their width, and the state's width of one call; `inner` = heads x head.

    einsums  whether the scan contracts by torch.einsum;  named  whether the first product that it sums has a name
    """

    rows: int
    batch: int
    length: int
    heads: int
    inner: int
    groups: int
    state: int
    chunk: int
    einsums: bool = True
    named: bool = False

    @property
    def chunks(self) -> int:
        """Chunks of a sequence."""
        return -(-self.length // self.chunk)

    @property
    def tokens(self) -> int:
        """Rows with every sequence filled up to whole chunks."""
        return self.batch * self.chunks * self.chunk


def mamba2(x: Tensor, modules: Modules, dims: LayerDims) -> Tensor:
    """One projection to gate, x, B, C and dt; a short convolution; the scan; a gated norm; the last projection."""
    first, convolution, last = modules.require("in_proj"), modules.require("conv1d"), modules.require("out_proj")
    decays = modules.require("A_log")
    tape, e = tape_of(x), x.e
    at = _sizes(dims, tape.caching, decays.weight.n, last.weight.n // last.out, convolution.out)
    scaled = dims.arch.mixer == "mamba2_scaled"
    x = unpadded(x, dims.rows, dims.job.padded)
    projected = project(scale(x) if scaled else x, first, dims.rows)
    if scaled:
        projected = scale(projected)
    factor = scale(unary(to(leaf(tape, decays.weight), 4), save_input=False, save_output=True))
    if dims.mixer.kernels:
        y = fused(projected, at)
        return project(y, last, dims.rows)
    gate, mixed, dt = split(projected, (at.rows * at.inner, at.rows * convolution.out, at.rows * at.heads))
    mixed = causal_convolution(mixed, convolution, dims)
    mixed = unpadded(mixed, dims.rows, dims.job.padded)
    shared = at.rows * at.groups * at.state
    h, b, c = split(mixed, (at.rows * at.inner, shared, shared))
    y = scan(h, dt, factor, b, c, modules, at)
    y = _gated(y, gate, modules.leaf("mamba.norm") or modules.leaf("mixer.norm"), dims, at)
    return project(to(y, e), last, dims.rows)


def _sizes(dims: LayerDims, generates: bool, heads: int, inner: int, mixed: int) -> Sizes:
    own, shared = dims.mixer, (mixed - inner) // 2
    # what trains on a release that sums products has the kernels, or no memory for many times as much
    einsums = not generates or dims.stack.does(EINSUM_SCAN)
    return Sizes(
        dims.rows, dims.batch, dims.length, heads, inner, own.groups, shared // own.groups, own.chunk, einsums,
        dims.stack.does(NAMED_PRODUCT),
    )  # fmt: skip


@labelled("states")
def scan(h: Tensor, dt: Tensor, factor: Tensor, b: Tensor, c: Tensor, modules: Modules, at: Sizes) -> Tensor:
    """`mamba2_chunk_scan`: Y = (C B' * L) X inside a chunk, plus what the states at the chunks' starts give.

    L has heads x chunk numbers a token; three of its size are kept. Written out, C B' is a sum over heads x chunk x
    state numbers a token, and (C B' * L) X one over chunk x inner. X comes from the convolution with tokens innermost:
    where there is one chunk, a product takes it as it lies, and so it does the one state that is read.
    """
    tape = tape_of(h)
    bias, skip = modules.require("dt_bias"), modules.require("D")
    step = add(dt, to(leaf(tape, bias.weight), dt.e))
    step = unary(to(step, 4) if tape.autocast else step)
    step = clamp(step)
    h = to(h, 4)
    wide = at.rows * at.heads * at.state
    b = repeat(to(b, 4), wide)
    c = repeat(to(c, 4), wide)
    filled = at.tokens * at.inner
    residual = mul(padded(h, filled), leaf(tape, skip.weight))
    h = mul(h, to(step, 4))
    a = mul(to(step, 4), factor)
    states_n = at.tokens * at.heads * at.state
    several = at.chunks > 1 or not at.einsums
    h, a = padded(h, filled), padded(a, at.tokens * at.heads)
    h = relaid(h) if several else h
    b, c = relaid(padded(b, states_n)), relaid(padded(c, states_n))
    total = summed_up(a)
    pairs = at.tokens * at.heads * at.chunk
    decays = unary(segments(a, pairs, at.chunk * at.chunk), save_input=False, save_output=True)
    names: list[Tensor] = []
    scores = einsum(c, b, pairs) if at.einsums else _summed(c, b, pairs, pairs * at.state, names if at.named else None)
    weights = mul(scores, decays)
    if at.einsums:
        inside = einsum(weights, h, filled, copy_a=False, copy_b=several, copied_gradient=True)
    else:
        weights = summed(weights, pairs)
        inside = _summed(weights, h, filled, at.tokens * at.chunk * at.inner)
    rest = exp(sub(window(total, total.n // at.chunk), total))
    entering = mul(b, rest)
    per_chunk = at.batch * at.inner * at.state
    wide = at.tokens * at.inner * at.state
    count = per_chunk * at.chunks
    states = einsum(entering, h, count, copy_b=several) if at.einsums else _summed(entering, h, count, wide)
    first = tape.new(per_chunk, 4)
    states = cat((first, states))
    between = at.batch * at.heads * (at.chunks + 1)
    ends = padded(window(total, total.n // at.chunk), between)
    moves = exp(segments(ends, between * (at.chunks + 1), (at.chunks + 1) ** 2))
    if at.einsums:
        states = einsum(moves, states, states.n, copy_a=False, copied_gradient=True)
    else:
        states = _summed(moves, states, states.n, states.n * (at.chunks + 1))
    states = window(states, per_chunk * at.chunks)
    leaving = exp(total)
    if at.einsums:
        read = einsum(c, states, filled, copy_b=several, copied_gradient=True)
    else:
        read = _summed(c, states, filled, wide, names)
    outside = mul(read, leaving)
    y = contiguous(add(inside, outside))
    y = add(y, residual)
    tape.store((4 if at.einsums else dt.e) * per_chunk)
    del first, moves, ends, entering, read, names
    return y if y.n == at.rows * at.inner else window(y, at.rows * at.inner)


def _summed(a: Tensor, b: Tensor, n: int, products: int, names: list[Tensor] | None = None) -> Tensor:
    """A sum to `n` elements over a * b of `products` elements, which stay alive with `names`."""
    whole = spread_mul(a, b, products)
    if names is not None:
        names.append(whole)
    return summed(whole, n)


@labelled("decays between tokens")
def segments(x: Tensor, n: int, cells: int) -> Tensor:
    """`segment_sum`: x spread to `n` elements and masked, summed up, masked again."""
    tape = tape_of(x)
    mask = tape.new(cells, 1)
    y = masked(x, n)
    y = summed_up(y)
    y = scale(y)
    del mask
    return y


@labelled("masked copy")
def masked(x: Tensor, n: int) -> Tensor:
    """x expanded to `n` elements with some put to zero; backward masks its gradient, then sums it."""
    tape, e, was = tape_of(x), x.e, x.n
    if n <= was:
        return scale(x)
    y = tape.new(n, e)

    def back(_: Tensor) -> tuple[Tensor]:
        whole = tape.new(n, e)
        result = tape.new(was, e)
        del whole
        return (result,)

    return made(y, tape.node((x,), back, saves=0, makes=was * e))


@labelled("running sum")
def summed_up(x: Tensor) -> Tensor:
    """torch.cumsum; backward flips, sums up and flips again."""
    tape, n, e = tape_of(x), x.n, x.e
    y = tape.new(n, e)

    def back(_: Tensor) -> tuple[Tensor]:
        flipped = tape.new(n, e)
        total = tape.new(n, e)
        del flipped
        result = tape.new(n, e)
        del total
        return (result,)

    return made(y, tape.node((x,), back, saves=0, makes=n * e))


@labelled("chunks")
def relaid(x: Tensor) -> Tensor:
    """Chunks of x: a view whose gradient, a sum of einsums' own layouts, is laid out anew."""
    return fresh(view(x), x)


def _gated(y: Tensor, gate: Tensor, norm: Linear | None, dims: LayerDims, at: Sizes) -> Tensor:
    """The gate's silu and a norm over groups of the output, in float32; Falcon-H1 has the gate alone by default."""
    if norm is None:
        return mul(y, unary(gate))
    y = to(y, 4)
    y = mul(y, unary(to(gate, 4)))
    rows = dims.rows * at.groups
    variance = mean(power(y), rows)
    y = mul(y, rsqrt(shift(variance)))
    return mul(y, norm.weight)


def fused(projected: Tensor, at: Sizes) -> Tensor:
    """mamba-ssm's `mamba_split_conv1d_scan_combined`: saves its input, the scan's output and a norm statistic.

    Backward makes the convolved input, the float32 states of the chunks and the gradient of the input.
    """
    tape, e, n = tape_of(projected), projected.e, projected.n
    states = 4 * at.batch * at.chunks * at.inner * at.state
    mixed = at.rows * (at.inner + 2 * at.groups * at.state)
    tape.scratch(states + mixed * e + 4 * at.tokens * at.groups * at.chunk)
    out = tape.new(at.rows * at.inner, e)
    y = tape.new(at.rows * at.inner, e)
    kept = (projected.storage, out.storage, tape.new(at.rows * at.groups, 4))

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor]:
        again = tape.new(mixed, e), _states(tape, states), tape.new(at.rows * at.inner, e)
        result = tape.new(n, e)
        del again
        return (result,)

    return made(y, tape.node((projected,), back))


def _states(tape: Tape, size: int) -> tuple[Tensor, Tensor]:
    return tape.new(size, 1), tape.new(size, 1)
