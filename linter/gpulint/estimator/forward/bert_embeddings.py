"""BERT's line: embeddings of words, token types and positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..adapters.linear import project
from ..layers.norms import NORMS
from ..tape.indexing import embedding
from ..tape.ops import add, dropout, unpadded

if TYPE_CHECKING:
    from ..adapters.modules import Modules
    from ..layers.dims import LayerDims
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor

PART = "layers and embeddings"


def bert_embeddings(tape: Tape, dims: LayerDims, outside: Modules, ids: Tensor, positions: Tensor) -> Tensor:
    """BERT's embeddings: each look-up is as wide as the table, the sums as the words.

    Positions are looked up once (BERT), or for every sequence where they depend on its padding (RoBERTa).
    """
    words = outside.need("embedding")
    width = words.weight.n // words.out
    x = y = embedding(tape, dims.rows, words.weight, width, ids)
    if dims.inputs_require_grad and x.node is None:
        tape.source(x)
    kinds = outside.leaf("token_type_embeddings")
    types = places = None
    if kinds is not None:
        types = embedding(tape, dims.rows, kinds.weight, width, ids)
        y = add(y, types)
    where = outside.leaf("position_embeddings")
    if where is not None:
        rows = dims.rows if dims.arch.positions == "rows" else dims.length
        places = embedding(tape, rows, where.weight, width, positions)
        y = add(y, places)
    y = NORMS[dims.arch.norm](y, outside.leaf(dims.arch.embed_norm), dims.rows)
    y = unpadded(y, dims.rows, dims.arch.scores == "disentangled")
    y = dropout(y, dims.dropout.embedding)
    del types, places, x
    projection = outside.leaf("embeddings_project") or outside.leaf("embedding_hidden_mapping_in")
    return y if projection is None else project(y, projection, dims.rows)
