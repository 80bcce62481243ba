"""Gemma 3n: alternating updates of several copies of the stream, LAuReL beside attention, sparse gates.

x here is the stack of `altup_num_inputs` streams (modeling_gemma3n.py 5.23).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..adapters.linear import project
from ..estimate import NotEstimable
from ..tape.indexing import assigned, repeat, stack, window
from ..tape.matmuls import product
from ..tape.ops import (
    add,
    add_to,
    clamp,
    contiguous,
    divided,
    mean,
    mul,
    power,
    scale,
    shift,
    sub,
    to,
    unary,
)
from .activation import activation, relu
from .norms import normed
from .sharing import shared_attention

if TYPE_CHECKING:
    from ..adapters.modules import Linear, Modules
    from ..tape.tensor import Tensor
    from .decoder import Layer
    from .setting import Setting


def streams(s: Setting) -> int:
    """How many copies of the stream there are."""
    return int(s.config.get("altup_num_inputs") or 4)


def spread(h: Tensor, s: Setting) -> tuple[Tensor, list[Tensor]]:
    """One projection of the embeddings for each further stream, brought to their length; the parts stay alive.

    So does the last projection, which has a name (modeling_gemma3n.py 5.23 `Gemma3nTextModel.forward`).
    """
    size = _length(h, s)
    parts, plain = [h], h
    for matrix in _matrices(s, "altup_projections"):
        plain = project(h, matrix, s.rows)
        parts.append(_brought(plain, size, s))
    return stack(parts), [*parts, plain]


def joined(x: Tensor, s: Setting) -> Tensor:
    """The first stream and a projection of each other one, averaged."""
    n = x.n // streams(s)
    first = window(x, n)
    size = _length(first, s)
    parts = [first]
    matrices = _matrices(s, "altup_unembed_projections")
    parts.extend(_brought(project(window(x, n), matrix, s.rows), size, s) for matrix in matrices)
    return mean(stack(parts), n)


def _length(x: Tensor, s: Setting) -> Tensor:
    return power(mean(_squared(x), s.rows))


def _squared(x: Tensor) -> Tensor:
    return power(to(x, 4) if x.storage.tape.autocast else x)


def _brought(x: Tensor, size: Tensor, s: Setting) -> Tensor:
    own = unary(clamp(mean(_squared(x), s.rows)), save_input=False, save_output=True)
    return divided(mul(x, size), own)


def _matrices(s: Setting, name: str) -> list[Linear]:
    found = [item for item in s.items if f".{name}." in item.name]
    copies = next((item.copies for item in found if item.part == "base"), 0)
    return [linear for _ in range(copies) for linear in s.modules_of(found).named.values()]


def altup_layer(layer: Layer, x: Tensor) -> Tensor:
    """Predict all streams, run attention and MLP on the first, correct all of them.

    What is between has names of its own to the end (modeling_gemma3n.py 5.23 `Gemma3nTextDecoderLayer.forward`).
    """
    s, modules = layer.s, layer.modules
    if s.shards > 1:
        raise NotEstimable("what sequence parallelism makes of this model's layers is not derived")
    count = streams(s)
    n = x.n // count
    predictions = _predicted(x, modules, s)
    active = window(predictions, n)
    h = layer.norm(active, 0)
    laurel = _laurel(h, modules, s)
    branch = layer.norm(shared_attention(h, layer), 1)
    gated = add(active, branch)
    both = scale(add(gated, laurel))
    third = layer.norm(both, 2)
    other = _gated(third, modules, s, layer.sparse)
    last = layer.norm(other, 3)
    activated = add(both, last)
    corrected = _corrected(predictions, activated, modules, s)
    first = contiguous(window(corrected, n))
    factor = modules.leaf("correct_output_scale")
    if factor is not None and s.config.get("altup_correct_scale", True):
        first = mul(first, factor.weight)
    assert layer.extra is not None
    first = project(first, modules.named["per_layer_input_gate"], s.rows)
    first = activation(s.activation)(first)
    first = mul(first, layer.extra)
    first = project(first, modules.named["per_layer_projection"], s.rows)
    first = normed(first, modules.leaf("post_per_layer_input_norm"), s.rows, s)
    rest = add_to(window(corrected, n * (count - 1)), first)
    del h, branch, gated, third, last
    return assigned(corrected, rest)


def _modalities(x: Tensor, modules: Modules, s: Setting) -> Tensor:
    router = modules.leaf("modality_router")
    assert router is not None
    h = scale(normed(x, modules.leaf("router_norm"), s.rows, s))
    h = project(h, router, s.rows)
    return to(unary(to(h, 4), save_input=False, save_output=True), x.e)


def _predicted(x: Tensor, modules: Modules, s: Setting) -> Tensor:
    coefficients = modules.leaf("prediction_coefs")
    assert coefficients is not None
    modalities = _modalities(window(x, x.n // streams(s)), modules, s)
    weights = project(modalities, coefficients, s.rows)
    y = product(x, weights, x.n)
    y = add_to(y, x)
    return to(contiguous(y), x.e)


def _corrected(predictions: Tensor, activated: Tensor, modules: Modules, s: Setting) -> Tensor:
    coefficients = modules.leaf("correction_coefs")
    assert coefficients is not None
    modalities = _modalities(activated, modules, s)
    innovation = sub(activated, window(predictions, activated.n))
    innovation = repeat(innovation, predictions.n)
    weights = shift(project(modalities, coefficients, s.rows))
    y = mul(innovation, weights)
    return add_to(y, predictions)


def _laurel(x: Tensor, modules: Modules, s: Setting) -> Tensor:
    left, right = modules.leaf("linear_left"), modules.leaf("linear_right")
    assert left is not None
    assert right is not None
    y = project(project(x, left, s.rows), right, s.rows)
    return add(x, normed(y, modules.leaf("post_laurel_norm"), s.rows, s))


def _gated(x: Tensor, modules: Modules, s: Setting, sparse: bool) -> Tensor:
    gate = project(x, modules.need("gate"), s.rows)
    if sparse:
        cut = add(mean(gate, s.rows), scale(deviation(gate, s.rows)))
        gate = relu(sub(gate, cut))
    acted = activation(s.activation)(gate)
    up = project(x, modules.need("up"), s.rows)
    return project(mul(acted, up), modules.need("down"), s.rows)


def deviation(x: Tensor, rows: int) -> Tensor:
    """torch.std over the last dimension: saves x; backward multiplies x less its mean."""
    tape, n, e = x.storage.tape, x.n, x.e
    y = tape.new(rows, e)

    def back(_: Tensor, _kept: object = (x.storage, y.storage)) -> tuple[Tensor]:
        centered = tape.new(n, e)
        result = tape.new(n, e)
        del centered
        return (result,)

    y.node = tape.node((x,), back)
    return y
