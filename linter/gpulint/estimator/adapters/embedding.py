"""LoRA over the embeddings: a second look-up, of rows of r elements, and a product back to the width.

Source: peft 0.21.2 tuners/lora/layer.py `Embedding.forward`, variants.py `DoraEmbeddingVariant`, dora.py
`DoraEmbeddingLayer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tape.indexing import embedding
from ..tape.matmuls import linear
from ..tape.ops import add, leaf, mul, scale, to
from ..tape.tape import tape_of

if TYPE_CHECKING:
    from ..tape.tensor import Tensor
    from .modules import Linear


def adapted_embeds(embeds: Tensor, layer: Linear, ids: Tensor, rows: int, scaled: bool) -> Tensor:
    """embeds + A[ids] B, in the width of `embeds`: h elements a row from r; `scaled` where the embeddings are.

    DoRA multiplies both by the magnitudes over a norm of the weight with the product added, V h elements each.
    """
    if layer.a is None or layer.b is None or tape_of(embeds).bare:
        return embeds
    tape, e = tape_of(embeds), embeds.e
    vocabulary = layer.weight.n // (embeds.n // rows)
    if layer.dora is None:
        branch = _branch(layer, ids, rows, vocabulary)
        if scaled:
            branch = scale(branch)
        return to(add(embeds, branch), e)
    product = tape.new(layer.weight.n, tape.autocast or layer.a.e)
    tape.scratch(2 * layer.weight.n * max(product.e, layer.weight.e))
    magnitude = leaf(tape, layer.dora)
    branch = scale(mul(magnitude, _branch(layer, ids, rows, vocabulary, scaled=False)))
    del product
    if scaled:
        branch = scale(branch)
    return to(add(mul(magnitude, embeds), branch), e)


def _branch(layer: Linear, ids: Tensor, rows: int, vocabulary: int, scaled: bool = True) -> Tensor:
    assert layer.a is not None
    assert layer.b is not None
    looked = embedding(tape_of(ids), rows, layer.a, layer.a.n // vocabulary, ids)
    found = linear(looked, layer.b, rows)
    return scale(found) if scaled else found
