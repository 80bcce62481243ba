"""Gemma 3n and 4: an input for every layer, of a second embedding and a projection of the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..adapters.linear import project
from ..tape.indexing import embedding, window
from ..tape.ops import add, scale
from .norms import NORMS, normed

if TYPE_CHECKING:
    from ..adapters.modules import Linear, Modules
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor
    from .dims import LayerDims


def layer_tokens(tape: Tape, ids: Tensor, outside: Modules, dims: LayerDims) -> Tensor | None:
    """The second embedding, of all layers in one tensor; it is made before images take their places in the first."""
    table, projection = outside.leaf("embed_tokens_per_layer"), outside.leaf("per_layer_model_projection")
    if table is None or projection is None:
        return None
    return scale(embedding(tape, dims.rows, table.weight, projection.out, ids))


def layer_inputs(embeds: Tensor, tokens: Tensor, outside: Modules, dims: LayerDims) -> Tensor:
    """Inputs of all layers in one tensor: the second embedding plus a projection of the first."""
    projection = outside.require("per_layer_model_projection")
    width = projection.out
    projected = scale(project(embeds, projection, dims.rows))
    norm = outside.require("per_layer_projection_norm")
    projected = unreplaced_norm(projected, norm, dims.rows * width // norm.weight.n, dims)
    return scale(add(projected, tokens))


def unreplaced_norm(x: Tensor, module: Linear | None, rows: int, dims: LayerDims) -> Tensor:
    """A norm that Liger leaves as it is."""
    return NORMS[dims.arch.norm](x, module, rows) if dims.fused else normed(x, module, rows, dims)


def slice_of(extra: Tensor | None, dims: LayerDims) -> Tensor | None:
    """One layer's share of the inputs for all layers; Zamba's is the same for each."""
    return extra if extra is None or dims.arch.order == "zamba" else window(extra, extra.n // dims.layers)
