"""Mamba mixers with a state for every channel (Mamba, Falcon-Mamba, Jamba): the selective scan, token by token.

What runs is the composite path of transformers (`mamba_selective_scan`, modeling_mamba.py 5.23) unless the job's
versions name `mamba-ssm`, whose kernel keeps no state but those at the chunks' starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...adapters.linear import project
from ...tape.backward import made
from ...tape.indexing import split, window
from ...tape.labels import labelled
from ...tape.matmuls import linear, matmul
from ...tape.ops import add, contiguous, leaf, mul, scale, to, unary, unpadded
from ...tape.tape import tape_of
from ...tape.tensor import wider
from ..norms import NORMS
from .convolution import causal_convolution

if TYPE_CHECKING:
    from ...adapters.modules import Linear, Modules
    from ...tape.tensor import Tensor
    from ..dims import LayerDims

TURNS = 4096
"""The scans of a model's layers are replayed in at most so many turns together; of longer sequences a turn takes
several tokens.
"""


def turns_of(dims: LayerDims) -> int:
    """Turns in which the scan of one layer is replayed."""
    return min(dims.length, max(1, TURNS // dims.layers))


def selective(x: Tensor, modules: Modules, dims: LayerDims) -> Tensor:
    """Projection to x and gate, a short convolution, dt, B and C from x, the scan, the gate and the last projection."""
    names = ("in_proj", "conv1d", "x_proj", "dt_proj", "out_proj", "A_log", "D")
    first, convolution, small, steps, last, decays, skip = (modules.require(name) for name in names)
    tape, rows, e = tape_of(x), dims.rows, x.e
    x = unpadded(x, rows, dims.job.padded)
    projected = project(x, first, rows)
    inner = last.weight.n // last.out
    factor = scale(unary(to(leaf(tape, decays.weight), 4), save_input=False, save_output=True))
    if dims.mixer.kernels:
        return project(fused(projected, rows * inner), last, rows)
    h, gate = split(projected, (rows * inner, rows * inner))
    h = causal_convolution(h, convolution, dims)
    h = unpadded(h, rows, dims.job.padded)
    state = decays.weight.n // inner
    rank = small.out - 2 * state
    parameters = project(_laid_out(h, dims), small, rows)
    dt, b, c = split(parameters, (rows * rank, rows * state, rows * state))
    norm = NORMS[dims.arch.norm]
    if modules.leaf("dt_layernorm") is not None:
        dt = norm(dt, modules.leaf("dt_layernorm"), rows)
        b = norm(b, modules.leaf("b_layernorm"), rows)
        c = norm(c, modules.leaf("c_layernorm"), rows)
    dt = linear(dt, steps.weight, rows)
    y = scan(h, dt, factor, b, c, gate, steps, skip, dims)
    return project(_laid_out(to(y, e), dims), last, rows)


@labelled("states")
def scan(
    h: Tensor,
    dt: Tensor,
    factor: Tensor,
    b: Tensor,
    c: Tensor,
    gate: Tensor,
    steps: Linear,
    skip: Linear,
    dims: LayerDims,
) -> Tensor:
    """Three tensors of a state for every channel and token, and every token's state once more in the input's width.

    The list of all tokens' outputs has a name to the end.
    """
    tape, e, n = tape_of(h), h.e, h.n
    if steps.bias is not None:
        dt = add(dt, to(to(leaf(tape, steps.bias), 4), dt.e))
    dt = unary(to(dt, 4) if tape.autocast else dt)
    states = n * (factor.n // (n // dims.rows))
    decays = unary(_product(factor, dt, states), save_input=False, save_output=True)
    weights = _product(dt, to(b, 4), states)
    inputs = mul(weights, to(h, 4))
    turns = turns_of(dims)
    part, column = states // turns, n // turns
    state = tape.new(states // dims.length, e)
    outputs = []
    for _ in range(turns):
        state = add(_product(window(decays, part), state, part), window(inputs, part))
        outputs.append(matmul(to(state, tape.autocast or e), window(c, c.n // turns), column))
    y = _stacked(outputs, n)
    y = add(y, mul(h, to(leaf(tape, skip.weight), 4)))
    y = mul(y, unary(gate))
    del outputs
    return y


def fused(projected: Tensor, n: int) -> Tensor:
    """mamba-ssm's `mamba_inner_fn`: saves its input, dt and the states at the starts of chunks of 2048 tokens.

    The convolved input and dt are made again in backward (`checkpoint_lvl=1`).
    """
    tape, e, whole = tape_of(projected), projected.e, projected.n
    tape.scratch(2 * n * e)
    scanned, y = tape.new(n, e), tape.new(n, e)

    def back(_: Tensor, _kept: object = (projected.storage, scanned)) -> tuple[Tensor]:
        again = tape.new(2 * n, e)
        result = tape.new(whole, e)
        gradients = tape.new(2 * n, e)
        del again, gradients
        return (result,)

    return made(y, tape.node((projected,), back))


def _laid_out(x: Tensor, dims: LayerDims) -> Tensor:
    """Channels-first rows as a matrix of tokens: a copy where there are several sequences."""
    return contiguous(x) if dims.batch > 1 else x


def _product(a: Tensor, b: Tensor, n: int) -> Tensor:
    """a * b broadcast to `n` elements, more than either has."""
    tape, e = tape_of(a), wider(a.e, b.e)
    y = tape.new(n, e)
    for_a, for_b = a.node is not None, b.node is not None
    kept = (a.storage if for_b else None, b.storage if for_a else None)

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor | None, Tensor | None]:
        return (tape.new(n, e) if for_a else None, tape.new(n, e) if for_b else None)

    return made(y, tape.node((a, b), back))


@labelled("outputs of all tokens")
def _stacked(parts: list[Tensor], n: int) -> Tensor:
    """torch.stack along the last dimension; the gradients are strided views of one."""
    tape, sizes = tape_of(parts[0]), [(part.n, part.e) for part in parts]
    y = tape.new(n, parts[0].e)
    return made(y, tape.node(tuple(parts), lambda _: tuple(tape.new(size, e) for size, e in sizes), saves=0))
