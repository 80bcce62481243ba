"""Adapters that add to what a module makes: low-rank paths with vectors, banks and blocks between (peft tuners/*).

Each function follows the `forward` of `tuners/<type>/layer.py` of peft 0.21.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...models.adapter_types import kind_of, number, option
from ..tape.backward import fresh, made
from ..tape.indexing import gather, split, topk
from ..tape.labels import labelled
from ..tape.matmuls import linear, linear_wide
from ..tape.ops import (
    add,
    add_to,
    contiguous,
    copied,
    dropout,
    exp,
    leaf,
    mul,
    scale,
    summed,
    to,
    unary,
)
from ..tape.rows import softmax
from ..tape.tape import tape_of
from ..tape.tensor import Parameter, Tensor
from .unadapted import product

if TYPE_CHECKING:
    from ..tape.tape import Tape
    from .modules import Linear


def adalora(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """x (A E)' B' scaling / rank, added in place."""
    tape, parts = tape_of(x), layer.parts
    result = _cloned(product(x, layer, rows), layer)
    wide = _wide(x, layer)
    inner = mul(leaf(tape, parts["lora_A"]), leaf(tape, parts["lora_E"]))
    branch = linear(linear_wide(dropout(wide, layer.dropout), inner, rows), parts["lora_B"], rows)
    if layer.packed and not tape.autocast:
        branch = to(branch, result.e)
    branch = scale(branch)
    ranks = parts["ranknum"]
    branch = _over(branch, ranks) if ranks.trainable else scale(branch)
    return add_to(result, branch)


@labelled("quotient")
def _over(x: Tensor, count: Parameter) -> Tensor:
    """x over a number that wants a gradient: x is kept, and three more of its size take part in that gradient."""
    tape, n, e = tape_of(x), x.n, x.e
    y = tape.new(n, e)

    def back(_: Tensor, _kept: object = x.storage) -> tuple[Tensor, Tensor]:
        left = tape.new(n, e)
        tape.scratch(3 * e * n)
        return left, tape.new(count.n, count.e)

    return made(y, tape.node((x, count), back))


def vera(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """Two frozen projections that all modules share, scaled by a vector behind each. PVeRA draws between them."""
    parts, name = layer.parts, kind_of(layer.settings)
    result = _cloned(product(x, layer, rows), layer)
    e, rank = result.e, parts[f"{name}_lambda_d"].n
    wide = to(x, parts[f"{name}_lambda_b"].e)
    inner = linear(dropout(wide, layer.dropout), _frozen(rank * (x.n // rows), wide.e), rows)
    inner = mul(inner, parts[f"{name}_lambda_d"])
    if name == "pvera":
        inner, rank = _drawn(inner), rank // 2
    branch = linear(inner, _frozen(rank * (result.n // rows), wide.e), rows)
    del inner
    return to(add(result, mul(branch, parts[f"{name}_lambda_b"])), e)


def _drawn(both: Tensor) -> Tensor:
    """A normal sample of the mean in the first half and the logarithm of the variance in the second."""
    tape, half = tape_of(both), both.n // 2
    mean, variance = split(both, (half, half))
    deviation = exp(scale(variance))
    return add(mean, mul(tape.new(half, deviation.e), deviation))


def vblora(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """A low-rank pair whose rows are mixtures of the best `topk` vectors of a bank."""
    tape, parts, count = tape_of(x), layer.parts, number(layer.settings, "topk")
    result = product(x, layer, rows)
    e, length = result.e, number(layer.settings, "vector_length")
    bank = Parameter(number(layer.settings, "num_vectors") * length, parts["vblora_logits_A"].e, True)
    bank.summed = True
    pair = []
    for side in "AB":
        logits = leaf(tape, parts[f"vblora_logits_{side}"])
        chosen = count * logits.n // number(layer.settings, "num_vectors")
        best, index = topk(logits, chosen)
        vectors = gather(leaf(tape, bank), chosen * length, index)
        mixed = summed(mul(vectors, softmax(best, best.e, fused=True)), chosen * length // count)
        pair.append(copied(mixed) if side == "B" else mixed)
        del logits, best, index, vectors, mixed
    wide = to(x, bank.e)
    branch = linear_wide(linear_wide(dropout(wide, layer.dropout), pair[0], rows), pair[1], rows)
    return to(add(result, branch), e)


def delora(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """A low-rank pair of normed rows and columns; the branch is added into zeros of the output's width first."""
    tape, parts = tape_of(x), layer.parts
    result = product(x, layer, rows)
    total = tape.new(result.n, result.e)
    inner = linear(mul(dropout(x, layer.dropout), leaf(tape, parts["delora_w_norm"])), parts["delora_A"], rows)
    norms = [_norm(parts[f"delora_{side}"], inner.n // rows, tape) for side in "AB"]
    scaling = mul(scale(leaf(tape, parts["delora_lambda"])), mul(*norms))
    branch = linear(mul(inner, scaling), parts["delora_B"], rows)
    del inner
    total = add_to(total, branch)
    return add(result, total)


def _norm(weight: Parameter, n: int, tape: Tape) -> Tensor:
    """The norms of a parameter's rows or columns: backward makes two tensors of its size."""
    y = tape.new(n, weight.e)

    def back(_: Tensor) -> tuple[Tensor]:
        scaled = tape.new(weight.n, weight.e)
        result = tape.new(weight.n, weight.e)
        del scaled
        return (result,)

    return made(y, tape.node((weight,), back))


def gralora(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """Low-rank pairs of k x k blocks: a batched product, the ranks exchanged between blocks, another product."""
    parts, result = layer.parts, product(x, layer, rows)
    e = result.e
    wide = to(x, parts["gralora_A"].e)
    count = max(1, number(layer.settings, "gralora_k"))
    first = _blocks(dropout(wide, layer.dropout), parts["gralora_A"], rows, count)
    second = _blocks(copied(first), parts["gralora_B"], rows, count)
    branch = scale(to(copied(second), e))
    del first, second
    result = add_to(result, branch)
    if "gralora_A_general" in parts:
        inner = linear(dropout(to(x, wide.e), layer.dropout), parts["gralora_A_general"], rows)
        result = add_to(result, scale(to(linear(inner, parts["gralora_B_general"], rows), e)))
    return result


def _blocks(x: Tensor, weight: Parameter, rows: int, count: int) -> Tensor:
    """A product with a block diagonal weight of `count` blocks."""
    tape = tape_of(x)
    e = tape.autocast or x.e
    w, inner = tape.cast(weight, e), to(x, e)
    y = tape.new(rows * count * (weight.n // (inner.n // rows)), e)
    n, wn, needed = inner.n, weight.n, inner.node is not None

    def back(_: Tensor, _kept: object = (inner.storage, w if needed else None)) -> tuple[Tensor | None, Tensor]:
        right = tape.new(wn, e)
        return (tape.new(n, e) if needed else None), right

    return made(y, tape.node((inner, w), back))


def miss(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """The inputs summed in groups of r times one block; `bat` puts a new weight together."""
    tape, block = tape_of(x), layer.parts["miss_block"]
    form = option(layer.settings, "init_weights")
    if form == "bat":
        from .deltas import bat

        return bat(x, layer, rows)
    result = _cloned(product(x, layer, rows), layer)
    e = result.e
    rank = block.n // (number(layer.settings, "mini_r") if form == "mini" else result.n // rows)
    wide = dropout(to(x, block.e), layer.dropout)
    sums = _grouped(wide, rows * rank)
    if form == "mini":
        branch = linear_wide(sums, _repeated(tape, block, rank * (result.n // rows)), rows)
    else:
        branch = linear(sums, block, rows)
    del sums
    result = add(result, branch)
    del branch
    return to(result, e)


def _grouped(x: Tensor, n: int) -> Tensor:
    """A sum over the middle dimension to `n` elements: the gradient, expanded, is copied into x's layout."""
    return fresh(tape_of(x).new(n, x.e), x)


def _repeated(tape: Tape, weight: Parameter, n: int) -> Tensor:
    """A parameter repeated to `n` elements; backward sums the repeats."""
    y = tape.new(n, weight.e)
    return made(y, tape.node((weight,), lambda _: (tape.new(weight.n, weight.e),), saves=0))


def c3a(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """A block-circular convolution in float32: transforms of inputs and kernel, their product, and back.

    Complex numbers take 8 bytes; of them nothing is saved, the inputs and the kernel are (tuners/c3a/utils.py).
    """
    tape = tape_of(x)
    result = product(x, layer, rows)
    kernel = to(leaf(tape, layer.parts["c3a_kernel"]), 4)
    wide = to(x, 4)
    n, out, kn, needed = wide.n, result.n, kernel.n, wide.node is not None
    tape.scratch(8 * (n + kn + out))
    y = tape.new(out, 4)

    def back(_: Tensor, _kept: object = (wide.storage, kernel.storage)) -> tuple[Tensor | None, Tensor]:
        spectrum = tape.new(out, 8)
        tape.scratch(8 * (2 * n + kn))
        left = tape.new(n, 8) if needed else None
        tape.scratch(8 * (n + 2 * kn))
        right = tape.new(kn, 8)
        del spectrum
        return left, right

    y.node = tape.node((wide, kernel), back)
    return add_to(result, to(scale(y), result.e))


def randlora(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """Two shared bases, the smaller one scaled anew for every use: as large as a square of the module's lesser side."""
    tape, parts = tape_of(x), layer.parts
    result = product(x, layer, rows)
    e = result.e
    inputs, outputs = x.n // rows, result.n // rows
    least, most = min(inputs, outputs), max(inputs, outputs)
    bases = parts["randlora_gamma"].n // least
    rank = parts["randlora_lambda"].n // bases
    scaled = _scaled_base(parts["randlora_lambda"], parts["randlora_gamma"], rank * bases * least, tape)
    wide = dropout(to(x, layer.width), layer.dropout)
    other = _frozen(most * bases * rank, layer.width)
    if least == inputs:
        branch = linear(linear_wide(wide, scaled, rows), other, rows)
    else:
        branch = linear_wide(linear(wide, other, rows), scaled, rows)
    del scaled
    return to(add(result, scale(branch)), e)


def _scaled_base(first: Parameter, second: Parameter, n: int, tape: Tape) -> Tensor:
    """lambda A gamma of `n` elements, over a product of the first two; each gradient takes two more of the size."""
    half = tape.new(n, first.e)
    y = tape.new(n, first.e)
    del half

    def back(_: Tensor) -> tuple[Tensor, Tensor]:
        tape.scratch(2 * first.e * n)
        return tape.new(first.n, first.e), tape.new(second.n, first.e)

    return made(y, tape.node((first, second), back))


def ia3(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """Outputs, or the inputs of feed-forward modules, times a learned vector."""
    tape, e = tape_of(x), x.e
    fed = layer.parts.get("ia3_l_feedforward")
    vector = scale(leaf(tape, fed or layer.parts["ia3_l"]))
    if layer.packed:
        wide = x if tape.autocast else to(x, 4)
        y = product(mul(wide, vector), layer, rows) if fed else mul(product(wide, layer, rows), vector)
        return contiguous(y) if layer.packed != "int8" else y
    if fed is not None:
        wide = to(x, fed.e)
        y = product(to(mul(wide, vector), e), layer, rows)
        del wide
        return y
    result = product(x, layer, rows)
    return to(mul(result, vector), result.e)


def road(x: Tensor, layer: Linear, rows: int) -> Tensor:
    """Pairs of outputs turned: the output times one vector and its half-swapped copy times another, in float32."""
    tape = tape_of(x)
    result = product(x, layer, rows)
    e = result.e
    angle, length = (leaf(tape, layer.parts[name]) for name in ("road_theta", "road_alpha"))
    if str(option(layer.settings, "variant")) == "road_1":
        angle, length = copied(angle), copied(length)
    columns = [mul(length, unary(angle)) for _ in range(2)]
    wide = to(result, angle.e)
    del result
    first = mul(wide, columns[0])
    turned = _swapped(wide)
    y = add(first, mul(turned, columns[1]))
    del first, turned
    return to(y, e)


def _swapped(x: Tensor) -> Tensor:
    """One half negated and put before the other: the negated half, then both joined."""
    tape, n, e = tape_of(x), x.n, x.e
    half = tape.new(n // 2, e)
    y = tape.new(n, e)
    del half

    def back(_: Tensor) -> tuple[Tensor]:
        first = tape.new(n, e)
        result = tape.new(n, e)
        del first
        return (result,)

    return made(y, tape.node((x,), back, saves=0))


def _wide(x: Tensor, layer: Linear) -> Tensor:
    """The input in the adapter's width; over packed weights autocast casts it by itself."""
    tape = tape_of(x)
    return x if layer.packed and tape.autocast else to(x, layer.width)


def _cloned(result: Tensor, layer: Linear) -> Tensor:
    """A 4-bit module's output is cloned (`maybe_clone_base_result`)."""
    return contiguous(result) if layer.packed and layer.packed != "int8" else result


def _frozen(n: int, e: int) -> Parameter:
    """A table of the adapter's that no gradient is made of."""
    return Parameter(n, e, False)
