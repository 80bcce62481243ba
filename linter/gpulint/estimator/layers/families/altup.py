"""Gemma 3n: alternating updates of several copies of the stream, LAuReL beside attention, sparse gates.

x here is the stack of `altup_num_inputs` streams (modeling_gemma3n.py 5.23).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...adapters.linear import project
from ...estimate import NotEstimable
from ...tape.backward import made
from ...tape.indexing import assigned, repeat, stack, window
from ...tape.matmuls import product
from ...tape.ops import (
    add,
    add_to,
    clamp,
    contiguous,
    divided,
    mul,
    power,
    scale,
    shift,
    sub,
    to,
    unary,
)
from ...tape.rows import mean
from ...tape.tape import tape_of
from ..activation import activation, relu
from ..norms import normed
from .gemma4 import shared_attention

if TYPE_CHECKING:
    from ...adapters.modules import Linear, Modules
    from ...tape.tensor import Tensor
    from ..dims import LayerDims
    from ..layer import Layer
    from ..weights import ModelWeights


def spread(h: Tensor, dims: LayerDims, weights: ModelWeights) -> tuple[Tensor, list[Tensor]]:
    """One projection of the embeddings for each further stream, brought to their length; the parts stay alive.

    So does the last projection, which has a name (modeling_gemma3n.py 5.23 `Gemma3nTextModel.forward`).
    """
    size = _length(h, dims)
    parts, plain = [h], h
    for matrix in _matrices(weights, "altup_projections"):
        plain = project(h, matrix, dims.rows)
        parts.append(_brought(plain, size, dims))
    return stack(parts), [*parts, plain]


def joined(x: Tensor, dims: LayerDims, weights: ModelWeights) -> Tensor:
    """The first stream and a projection of each other one, averaged."""
    n = x.n // dims.streams
    first = window(x, n)
    size = _length(first, dims)
    parts = [first]
    matrices = _matrices(weights, "altup_unembed_projections")
    parts.extend(_brought(project(window(x, n), matrix, dims.rows), size, dims) for matrix in matrices)
    return mean(stack(parts), n)


def _length(x: Tensor, dims: LayerDims) -> Tensor:
    return power(mean(_squared(x), dims.rows))


def _squared(x: Tensor) -> Tensor:
    return power(to(x, 4) if tape_of(x).autocast else x)


def _brought(x: Tensor, size: Tensor, dims: LayerDims) -> Tensor:
    own = unary(clamp(mean(_squared(x), dims.rows)), save_input=False, save_output=True)
    return divided(mul(x, size), own)


def _matrices(weights: ModelWeights, name: str) -> list[Linear]:
    found = [item for item in weights.items if f".{name}." in item.name]
    copies = next((item.copies for item in found if item.part == "base"), 0)
    return [linear for _ in range(copies) for linear in weights.of(found).named.values()]


def altup_layer(layer: Layer, x: Tensor) -> Tensor:
    """Predict all streams, run attention and MLP on the first, correct all of them.

    What is between has names of its own to the end (modeling_gemma3n.py 5.23 `Gemma3nTextDecoderLayer.forward`).
    """
    dims, modules = layer.dims, layer.modules
    if dims.sequence_shards > 1:
        raise NotEstimable("what sequence parallelism makes of this model's layers is not derived")
    count = dims.streams
    n = x.n // count
    predictions = _predicted(x, modules, dims)
    active = window(predictions, n)
    h = layer.norm(active, 0)
    laurel = _laurel(h, modules, dims)
    branch = layer.norm(shared_attention(h, layer), 1)
    gated = add(active, branch)
    both = scale(add(gated, laurel))
    third = layer.norm(both, 2)
    other = _gated(third, modules, dims, layer.number in dims.sparse_gates)
    last = layer.norm(other, 3)
    activated = add(both, last)
    corrected = _corrected(predictions, activated, modules, dims)
    first = contiguous(window(corrected, n))
    factor = modules.leaf("correct_output_scale")
    if factor is not None and dims.scales_output:
        first = mul(first, factor.weight)
    assert layer.extra is not None
    first = project(first, modules.named["per_layer_input_gate"], dims.rows)
    first = activation(dims.activation)(first)
    first = mul(first, layer.extra)
    first = project(first, modules.named["per_layer_projection"], dims.rows)
    first = normed(first, modules.leaf("post_per_layer_input_norm"), dims.rows, dims)
    rest = add_to(window(corrected, n * (count - 1)), first)
    del h, branch, gated, third, last
    return assigned(corrected, rest)


def _modalities(x: Tensor, modules: Modules, dims: LayerDims) -> Tensor:
    router = modules.require("modality_router")
    h = scale(normed(x, modules.leaf("router_norm"), dims.rows, dims))
    h = project(h, router, dims.rows)
    return to(unary(to(h, 4), save_input=False, save_output=True), x.e)


def _predicted(x: Tensor, modules: Modules, dims: LayerDims) -> Tensor:
    coefficients = modules.require("prediction_coefs")
    modalities = _modalities(window(x, x.n // dims.streams), modules, dims)
    weights = project(modalities, coefficients, dims.rows)
    y = product(x, weights, x.n)
    y = add_to(y, x)
    return to(contiguous(y), x.e)


def _corrected(predictions: Tensor, activated: Tensor, modules: Modules, dims: LayerDims) -> Tensor:
    coefficients = modules.require("correction_coefs")
    modalities = _modalities(activated, modules, dims)
    innovation = sub(activated, window(predictions, activated.n))
    innovation = repeat(innovation, predictions.n)
    weights = shift(project(modalities, coefficients, dims.rows))
    y = mul(innovation, weights)
    return add_to(y, predictions)


def _laurel(x: Tensor, modules: Modules, dims: LayerDims) -> Tensor:
    left, right = modules.require("linear_left"), modules.require("linear_right")
    y = project(project(x, left, dims.rows), right, dims.rows)
    return add(x, normed(y, modules.leaf("post_laurel_norm"), dims.rows, dims))


def _gated(x: Tensor, modules: Modules, dims: LayerDims, sparse: bool) -> Tensor:
    gate = project(x, modules.need("gate"), dims.rows)
    if sparse:
        cut = add(mean(gate, dims.rows), scale(deviation(gate, dims.rows)))
        gate = relu(sub(gate, cut))
    acted = activation(dims.activation)(gate)
    up = project(x, modules.need("up"), dims.rows)
    return project(mul(acted, up), modules.need("down"), dims.rows)


def deviation(x: Tensor, rows: int) -> Tensor:
    """torch.std over the last dimension: saves x; backward multiplies x less its mean."""
    tape, n, e = tape_of(x), x.n, x.e
    y = tape.new(rows, e)

    def back(_: Tensor, _kept: object = (x.storage, y.storage)) -> tuple[Tensor]:
        centered = tape.new(n, e)
        result = tape.new(n, e)
        del centered
        return (result,)

    return made(y, tape.node((x,), back))
