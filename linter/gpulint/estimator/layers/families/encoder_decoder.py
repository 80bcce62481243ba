"""The layers of encoder-decoders: attention to themselves, then to the encoder, then the MLP.

Source: transformers 5.23 models/t5/modeling_t5.py, bart/modeling_bart.py and those that copy them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...adapters.linear import project
from ...tape.indexing import embedding
from ...tape.labels import labelled
from ...tape.ops import add, clamp, copied, dropout, mul, relayout, scale, to
from ...tape.tape import tape_of
from ..activation import activation
from ..attention.cross_attention import by_distance, efficient
from ..attention.heads import heads_of
from ..attention.kernels import attend
from ..norms import NORMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...adapters.modules import Linear, Modules
    from ...tape.tape import Tape
    from ...tape.tensor import Tensor
    from ..dims import LayerDims
    from ..layer_inputs import StackInputs

PART = "layers of both stacks"

SELF, CROSS = ("SelfAttention.", "self_attn."), ("EncDecAttention.", "encoder_attn.")


class StackLayer:
    """One layer of either stack; `decodes` where it is the decoder's."""

    def __init__(self, dims: LayerDims, modules: Modules, number: int, decodes: bool, inputs: StackInputs) -> None:
        self.dims = dims
        self.modules = modules
        self.number = number
        self.decodes = decodes
        self.inputs = inputs
        self.biased = dims.arch.order == "t5"

    def __call__(self, x: Tensor) -> Tensor:
        """The layer's output."""
        y = BLOCKS[self.dims.arch.order](self, x)
        tape_of(x).returned = None
        return y

    def prepare(self, tape: Tape) -> None:
        """The biases of the first layer, before a checkpoint that would not hand them on."""
        if self.biased and not self.dims.arch.own_bias:
            self.distances(tape)

    def part(self, names: tuple[str, ...], role: str) -> Linear:
        """A projection of one of the two attentions."""
        return next(m for key, m in self.modules.named.items() if m.role == role and any(n in key for n in names))

    def norm(self, x: Tensor, name: str) -> Tensor:
        """A norm of the layer by name."""
        return NORMS[self.dims.arch.norm](x, self.modules.named[name], self.dims.rows)

    @labelled("distances of positions")
    def distances(self, tape: Tape) -> None:
        """T5's biases, heads x queries x keys: looked up by the first layer, zeros for the encoder's output.

        With checkpointing the zeros want a gradient (modeling_t5.py T5Attention).
        """
        dims, inputs = self.dims, self.inputs
        table = self.modules.leaf("relative_attention_bias")
        if inputs.bias is None and table is not None:
            square = dims.length * dims.length
            inputs.bias = embedding(tape, square, table.weight, dims.attention.heads, tape.new(square, 8))
        if self.decodes and inputs.cross_bias is None:
            inputs.cross_bias = tape.new(self._pairs(), tape.autocast or dims.embedding_e)
            if dims.checkpoint.mode != "none":
                tape.source(inputs.cross_bias)

    def _pairs(self) -> int:
        """Elements of the biases of the encoder's output, all of them zero."""
        return self.dims.attention.heads * self.dims.length * (self.inputs.rows // self.dims.batch)

    def bias_of(self, tape: Tape, cross: bool) -> Tensor | None:
        """The biases of one of the attentions: what all layers share, in UMT5 this one's own."""
        dims, inputs = self.dims, self.inputs
        if not dims.arch.own_bias:
            self.distances(tape)
            return inputs.cross_bias if cross else inputs.bias
        if cross:
            return tape.new(self._pairs(), tape.autocast or dims.embedding_e)
        table, square = self.modules.require("relative_attention_bias"), dims.length * dims.length
        return embedding(tape, square, table.weight, dims.attention.heads, tape.new(square, 8))

    def attention(self, x: Tensor, cross: bool = False) -> Tensor:
        """Attention to x itself, or to the encoder's output, and its projection."""
        dims, inputs = self.dims, self.inputs
        names = CROSS if cross else SELF
        source, rows = (inputs.states, inputs.rows) if cross else (x, dims.rows)
        assert source is not None
        if dims.arch.query_scale:
            q = _heads(scale(project(x, self.part(names, "q"), dims.rows)))
            k, v = (_heads(project(source, self.part(names, role), rows)) for role in ("k", "v"))
        else:
            q = relayout(project(x, self.part(names, "q"), dims.rows))
            k = relayout(project(source, self.part(names, "k"), rows))
            v = project(source, self.part(names, "v"), rows)
        bias = self.bias_of(tape_of(x), cross) if self.biased else None
        at = heads_of(dims, self.number)._replace(keys=rows // dims.batch)
        if bias is not None:
            kernel = by_distance if dims.attention.implementation == "eager" else efficient
            y = kernel(q, k, v, bias, at, self.decodes and not cross)
        else:
            y = attend(dims.attention.implementation, q, k, v, self._mask(tape_of(x), cross), at)
        return project(y, self.part(names, "o"), dims.rows)

    def _mask(self, tape: Tape, cross: bool) -> Tensor | None:
        """A decoder's causal mask exists for eager attention alone."""
        dims, inputs = self.dims, self.inputs
        if cross:
            return inputs.states_mask
        if self.decodes and dims.attention.implementation == "eager" and inputs.mask is None:
            inputs.mask = tape.new(dims.batch * dims.length * dims.length, dims.embedding_e)
        return inputs.mask

    def dense(self, x: Tensor) -> Tensor:
        """T5's MLP; its last projection gets its input in the width of its weight, whatever autocast then does."""
        dims, act = self.dims, activation(self.dims.activation)
        gate, down = self.modules.role("gate"), self.modules.need("down")
        up = self.modules.need("up")
        if gate is None:
            h = project(x, up, dims.rows)
            h = act(h)
            h = dropout(h, dims.dropout.residual)
            h = to(h, down.weight.e)
            return project(h, down, dims.rows)
        first = act(project(x, gate, dims.rows))
        second = project(x, up, dims.rows)
        h = mul(first, second)
        h = dropout(h, dims.dropout.residual)
        h = to(h, down.weight.e)
        return project(h, down, dims.rows)

    def plain(self, h: Tensor) -> Tensor:
        """Two projections with dropout behind the activation and the second."""
        dims = self.dims
        h = activation(dims.activation)(project(h, self.modules.need("up"), dims.rows))
        h = dropout(h, dims.dropout.activation)
        h = project(h, self.modules.need("down"), dims.rows)
        return dropout(h, dims.dropout.residual)


def _heads(x: Tensor) -> Tensor:
    """Heads laid out one after the other by a copy (Whisper); the gradient is copied back."""
    y = copied(x)
    y.heads_first = True
    return y


def t5(layer: StackLayer, x: Tensor) -> Tensor:
    """T5: a norm before each branch, which keeps a name of its own."""
    p = layer.dims.dropout.residual
    normed = layer.norm(x, "layer.0.layer_norm")
    h = add(x, dropout(layer.attention(normed), p))
    del normed
    if layer.decodes:
        normed = layer.norm(h, "layer.1.layer_norm")
        h = add(h, dropout(layer.attention(normed, cross=True), p))
        del normed
    branch = layer.norm(h, f"layer.{2 if layer.decodes else 1}.layer_norm")
    branch = layer.dense(branch)
    return add(h, dropout(branch, p))


def bart(layer: StackLayer, x: Tensor) -> Tensor:
    """BART, Marian: a norm behind each sum."""
    p = layer.dims.dropout.residual
    h = layer.attention(x)
    h = dropout(h, p)
    h = add(x, h)
    h = layer.norm(h, "self_attn_layer_norm")
    if layer.decodes:
        residual = h
        h = layer.attention(h, cross=True)
        h = dropout(h, p)
        h = add(residual, h)
        h = layer.norm(h, "encoder_attn_layer_norm")
    residual = h
    h = layer.plain(h)
    h = add(residual, h)
    return layer.norm(h, "final_layer_norm")


def mbart(layer: StackLayer, x: Tensor) -> Tensor:
    """mBART, Pegasus, Whisper, M2M100: a norm before each branch; the encoder's layers clamp float16.

    Source of the clamp: transformers 5.23 models/whisper/modeling_whisper.py `WhisperEncoderLayer.forward`.
    """
    p = layer.dims.dropout.residual
    h = layer.norm(x, "self_attn_layer_norm")
    h = layer.attention(h)
    h = dropout(h, p)
    h = add(x, h)
    if layer.decodes:
        residual = h
        h = layer.norm(h, "encoder_attn_layer_norm")
        h = layer.attention(h, cross=True)
        h = dropout(h, p)
        h = add(residual, h)
    residual = h
    h = layer.norm(h, "final_layer_norm")
    h = layer.plain(h)
    h = add(residual, h)
    clamps = not layer.decodes and h.e == 2 and layer.dims.job.weights.dtype == "float16"
    return clamp(h) if clamps else h


BLOCKS: dict[str, Callable[[StackLayer, Tensor], Tensor]] = {"t5": t5, "bart": bart, "mbart": mbart}
