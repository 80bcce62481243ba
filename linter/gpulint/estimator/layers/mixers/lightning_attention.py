"""Lightning attention: the linear attention of MiniMax-Text-01 and M1, in blocks of tokens.

What runs is the composite path of transformers (modeling_minimax.py 5.23, MiniMaxLightningAttention); it has no other:
inside a block the product of queries and keys, between blocks a matrix of head dim x head dim for each head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...adapters.linear import project
from ...tape.indexing import cat, split, window
from ...tape.ops import add, contiguous, mul, relayout, unary, unpadded
from ...tape.tape import tape_of
from ...tape.tensor import Tensor
from ..activation import activation
from ..attention.kernels import heads_product
from ..norms import NORMS

if TYPE_CHECKING:
    from ...adapters.modules import Modules
    from ..dims import LayerDims

PART = "lightning attention"


def lightning(x: Tensor, modules: Modules, dims: LayerDims) -> Tensor:
    """act of one projection to q, k and v; the blocks; a norm, a sigmoid gate of x, the last projection."""
    tape, rows = tape_of(x), dims.rows
    gate, last, norm = modules.require("output_gate"), modules.require("out_proj"), modules.leaf("self_attn.norm")
    mixed = unpadded(activation(dims.activation)(project(x, modules.need("qkv"), rows)), rows, dims.job.padded)
    width = mixed.n // 3
    q, k, v = split(mixed, (width, width, width))
    q, k, v = relayout(q), relayout(k), relayout(v)
    e = v.e
    head = width // rows // dims.attention.heads
    state = tape.new(dims.batch * dims.attention.heads * head * head, e)
    block = dims.mixer.block
    outputs = []
    for start in range(0, dims.length, block):
        size = min(block, dims.length - start)
        part = dims.batch * dims.attention.heads * size * head
        several = dims.batch > 1
        query, key, value = window(q, part), window(k, part), window(v, part)
        decay = tape.new(dims.attention.heads, e)
        scores = heads_product(query, key, dims.batch * dims.attention.heads * size * size, several, several)
        decayed = mul(scores, Tensor(tape.nothing, dims.attention.heads * size * size, e))
        inside = heads_product(decayed, value, part, False, several)
        del decayed
        rates = Tensor(tape.nothing, dims.attention.heads * size, e)
        outside = heads_product(mul(query, rates), state, part, several, False)
        outputs.append(add(outside, inside))
        following = heads_product(mul(key, rates), value, state.n, several, several)
        state = add(mul(state, decay), following)
    y = cat(outputs)
    y = contiguous(y)
    y = NORMS[dims.arch.norm](y, norm, rows)
    y = mul(unary(project(x, gate, rows), save_input=False, save_output=True), y)
    return project(y, last, rows)
