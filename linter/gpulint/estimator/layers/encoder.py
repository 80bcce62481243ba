"""Encoders of BERT's line: embeddings of words, token types and positions, and layers with a norm behind each sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..adapters.linear import project
from ..tape.indexing import embedding
from ..tape.ops import add, dropout, unpadded
from .activation import activation
from .experts import feed_forward
from .norms import NORMS

if TYPE_CHECKING:
    from ..adapters.modules import Modules
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor
    from .decoder import Layer
    from .setting import Setting

PART = "layers and embeddings"


def encoder_stem(tape: Tape, s: Setting, outside: Modules, ids: Tensor, positions: Tensor) -> Tensor:
    """BERT's embeddings: each look-up is as wide as the table, the sums as the words.

    Positions are looked up once (BERT), or for every sequence where they depend on its padding (RoBERTa).
    """
    words = outside.need("embedding")
    width = words.weight.n // words.out
    x = y = embedding(tape, s.rows, words.weight, width, ids)
    if s.leaf_inputs and x.node is None:
        tape.source(x)
    kinds = outside.leaf("token_type_embeddings")
    types = places = None
    if kinds is not None:
        types = embedding(tape, s.rows, kinds.weight, width, ids)
        y = add(y, types)
    where = outside.leaf("position_embeddings")
    if where is not None:
        places = embedding(tape, s.rows if s.traits.positions == "rows" else s.length, where.weight, width, positions)
        y = add(y, places)
    y = NORMS[s.traits.norm](y, outside.leaf(s.traits.embed_norm), s.rows)
    y = unpadded(y, s.rows, s.traits.scores == "disentangled")
    y = dropout(y, s.embedding_dropout)
    del types, places, x
    projection = outside.leaf("embeddings_project") or outside.leaf("embedding_hidden_mapping_in")
    return y if projection is None else project(y, projection, s.rows)


def bert_layer(layer: Layer, x: Tensor) -> Tensor:
    """BERT: what the MLP's activation makes has a name to the end of the layer."""
    s, modules = layer.s, layer.modules
    h = layer.attention(x)
    h = layer.norm(add(h, x), 0)
    inner = activation(s.activation)(project(h, modules.need("up"), s.rows))
    y = project(inner, modules.need("down"), s.rows)
    y = dropout(y, s.residual_dropout)
    return layer.norm(add(y, h), 2)


def distilbert_layer(layer: Layer, x: Tensor) -> Tensor:
    """DistilBERT: dropout behind the MLP only."""
    h = layer.plain_attention(x)
    h = layer.norm(add(h, x), 0)
    y = layer.mlp(h)
    return layer.norm(add(y, h), 2)


def albert_layer(layer: Layer, x: Tensor) -> Tensor:
    """ALBERT: dropout behind attention only."""
    h = layer.attention(x)
    h = layer.norm(add(x, h), 0)
    y = feed_forward(h, layer.modules, layer.s)
    return layer.norm(add(y, h), 2)
