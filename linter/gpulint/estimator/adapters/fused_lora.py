"""LoRA in fused autograd functions: projections and MLP as axolotl and Unsloth compute them.

T tokens, h hidden size, f the MLP's, o a projection's outputs, r the rank, e bytes of x. PEFT's layers save x once for
each low-rank branch and what stands between gate and down projection; these save x, what dropout made of it, gate, up
and the low-rank weights in x's width, and make the rest again. Weights of 4 bits are unpacked for every product.

Source: axolotl 0.18 src/axolotl/kernels/lora.py (`LoRA_QKV`, `LoRA_O`, `LoRA_MLP`), swiglu.py, quantize.py; Unsloth's,
after which it is written, as fms-acceleration has it (fused_ops/unsloth_lora/bnb/fast_lora.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tape.backward import made
from ..tape.labels import labelled
from ..tape.ops import dropout
from ..tape.tape import tape_of
from ..tape.tensor import Tensor
from .unadapted import unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..tape.tape import Tape
    from ..tape.tensor import Storage
    from .lora_kernels import Style
    from .modules import Linear, Modules


def fits(part: str, *layers: Linear | None) -> bool:
    """Whether the function replaces these layers: all have low-rank weights, and a base that it can multiply."""
    return all(
        layer is not None
        and part in layer.kernels.parts
        and layer.a is not None
        and layer.dora is None
        and layer.packed in ("", "4bit")
        and (layer.bias is None or layer.kernels.style.biased)
        and (not layer.dropout or layer.kernels.style.with_dropout)
        for layer in layers
    )


def projections(x: Tensor, layers: Sequence[Linear], rows: int) -> list[Tensor]:
    """Several projections of the same x, one backward function for all: queries, keys and values, or the output.

    Saved: x, the dropped x and the low-rank weights in x's width. Backward: T x r for each projection, one gradient of
    x, an unpacked weight at a time.
    """
    tape, e, how = tape_of(x), tape_of(x).autocast or x.e, layers[0].kernels.style
    dropped = _dropped(x, layers, how)
    ys = [_projected(x, layer, rows, e, how) for layer in layers]
    lows = [_low_rank(layer, tape, e) for layer in layers]
    n, storage, needed = x.n, x.storage, x.node is not None
    outside = dropped[0] if dropped and not how.own_dropout else None

    def back(*_: Tensor, _kept: object = (storage, [y.storage for y in dropped], lows)) -> tuple[Tensor | None, ...]:
        inner = [tape.new(rows * _rank(layer), e) for layer in layers]
        grads = [tape.new(part.n, e) for layer in layers for part in (layer.a, layer.b) if part is not None]
        gx = _gradient(tape, n, e, storage, how)
        for layer in layers:
            _weight(layer, tape)
            _added(tape, n, e, how, bool(dropped))
        gd = tape.new(n, e) if outside is not None else None
        del inner
        return (gx if needed else None, gd, *grads)

    node = tape.node((x, outside, *(part for layer in layers for part in (layer.a, layer.b))), back, slots=len(layers))
    for slot, y in enumerate(ys):
        y.node, y.slot = node, slot
    return ys


def mlp(x: Tensor, modules: Modules, rows: int) -> Tensor:
    """down(act(gate(x)) * up(x)): saves x, the dropped x, gate and up.

    Backward makes the gradient of the product and writes over it, gate and up: the product itself, and their gradients.
    """
    gate, up, down = (modules.need(role) for role in ("gate", "up", "down"))
    tape, e, how = tape_of(x), tape_of(x).autocast or x.e, gate.kernels.style
    layers = (gate, up, down)
    dropped = _dropped(x, (gate, up), how)
    first, second = _projected(x, gate, rows, e, how), _projected(x, up, rows, e, how)
    product = tape.new(first.n, e)
    below = _dropped(product, (down,), how) if how.own_dropout else []
    y = _projected(product, down, rows, e, how)
    lows = [_low_rank(layer, tape, e) for layer in layers]
    del product
    n, width, storage, needed = x.n, first.n, x.storage, x.node is not None
    outside = dropped[0] if dropped and not how.own_dropout else None
    kept = (storage, [z.storage for z in (*dropped, *below)], first.storage, second.storage, lows)

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor | None, ...]:
        weight = _weight(down, tape)
        turned = tape.new(width, e)
        del weight
        _added(tape, width, e, how, bool(below))
        grads = [tape.new(part.n, e) for layer in layers for part in (layer.a, layer.b) if part is not None]
        inner = [tape.new(rows * _rank(layer), e) for layer in layers]
        gx = _gradient(tape, n, e, storage, how)
        for layer in (up, gate):
            _weight(layer, tape)
            _added(tape, n, e, how, bool(dropped))
        gd = tape.new(n, e) if outside is not None else None
        del turned, inner
        return (gx if needed else None, gd, *grads)

    return made(y, tape.node((x, outside, *(part for layer in layers for part in (layer.a, layer.b))), back))


@labelled("input after dropout")
def _dropped(x: Tensor, layers: Sequence[Linear], how: Style) -> list[Tensor]:
    """x after dropout: once before the function, with a mask that autograd saves, or within it for each projection."""
    p = layers[0].dropout
    if not p:
        return []
    if not how.own_dropout:
        return [dropout(x, p)]
    tape = tape_of(x)
    found = []
    for _ in layers:
        found.append(tape.new(x.n, x.e))
        tape.scratch(x.n)
    return found


@labelled("fused LoRA output")
def _projected(x: Tensor, layer: Linear, rows: int, e: int, how: Style) -> Tensor:
    """x W + s (x A) B: the weight unpacked, the output, then the low-rank product."""
    tape = tape_of(x)
    columns = max(1, x.n // rows)
    narrow = tape.new(x.n, e) if x.e != e else None
    weight = _weight(layer, tape)
    y = tape.new(rows * max(1, layer.weight.n // columns), e)
    del weight
    low = _low_rank(layer, tape, e)
    if how.scaled_input:
        tape.scratch(x.n * e)
    inner = tape.new(rows * _rank(layer), e)
    if how.additions:
        tape.scratch(y.n * e)
    del low, inner, narrow
    return y


def _low_rank(layer: Linear, tape: Tape, e: int) -> list[Tensor]:
    """The low-rank weights in the width of x, where they have another."""
    return list(_narrowed(layer, tape, e))


@labelled("low-rank weight in 16 bits")
def _narrowed(layer: Linear, tape: Tape, e: int) -> Iterator[Tensor]:
    for part in (layer.a, layer.b):
        if part is not None and part.e != e:
            yield tape.new(part.n, e)


def _rank(layer: Linear) -> int:
    assert layer.b is not None
    return max(1, layer.b.n // layer.out)


def _weight(layer: Linear, tape: Tape) -> Tensor | None:
    """The weight unpacked, for as long as the caller holds it; None where it is the parameter itself."""
    return unpacked(tape, layer.weight.n) if layer.packed else None


@labelled("gradient of the input")
def _gradient(tape: Tape, n: int, e: int, saved: Storage, how: Style) -> Tensor:
    """The gradient of x: new, or in the bytes of x; a view of a matrix either way."""
    gx = Tensor(saved, n, e, view=True) if how.in_place else tape.new(n, e)
    gx.view = True
    return gx


def _added(tape: Tape, n: int, e: int, how: Style, masked: bool) -> None:
    """A low-rank term that is made in full and then added, behind dropout times a mask of one byte an element."""
    if how.additions:
        tape.scratch(n * (2 * e + 1) if masked and how.own_dropout else n * e)
