"""The layers of encoder-decoders: attention to themselves, to the encoder, and T5's biases by distance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...adapters.linear import project
from ...tape.indexing import embedding
from ...tape.labels import labelled
from ...tape.matmuls import product
from ...tape.ops import (
    add,
    clamp,
    contiguous,
    copied,
    dropout,
    masked,
    mul,
    relayout,
    scale,
    softmax,
    to,
)
from ...tape.tensor import Tensor
from ..activation import activation
from ..norms import NORMS
from .kernels import attend, up_to

if TYPE_CHECKING:
    from ...adapters.modules import Linear
    from ...tape.tape import Tape
    from ..seq2seq import Pair
    from .kernels import Heads

PART = "layers of both stacks"

SELF, CROSS = ("SelfAttention.", "self_attn."), ("EncDecAttention.", "encoder_attn.")


class Inside:
    """What the layers of a running stack share: masks, biases by distance, what the encoder made (`memory`)."""

    def __init__(self, rows: int, memory: Tensor | None = None, over: Tensor | None = None) -> None:
        self.rows = rows
        self.memory = memory
        self.over = over
        self.mask: Tensor | None = None
        self.bias: Tensor | None = None
        self.cross: Tensor | None = None

    def shared(self) -> tuple[Tensor, ...]:
        """What gets gradients from all layers."""
        return tuple(x for x in (self.memory, self.bias, self.cross) if x is not None and x.node is not None)

    def prepare(self, block: Block, tape: Tape) -> None:
        """The biases of the first layer, before a checkpoint that would not hand them on."""
        if block.biased and not block.side.traits.own_bias:
            block.distances(tape)


class Block:
    """One layer of either stack."""

    def __init__(self, s: Pair, layer: int, inside: Inside) -> None:
        self.side, self.number = s.parts(layer)
        self.inside = inside
        self.modules = s.modules(layer)
        self.decodes = self.side is s
        self.biased = s.traits.order == "t5"

    def __call__(self, x: Tensor) -> Tensor:
        """The layer's output."""
        y = ORDERS[self.side.traits.order](self, x)
        x.storage.tape.returned = None
        return y

    def part(self, names: tuple[str, ...], role: str) -> Linear:
        """A projection of one of the two attentions."""
        return next(m for key, m in self.modules.named.items() if m.role == role and any(n in key for n in names))

    def norm(self, x: Tensor, name: str) -> Tensor:
        """A norm of the layer by name."""
        return NORMS[self.side.traits.norm](x, self.modules.named[name], self.side.rows)

    @labelled("distances of positions")
    def distances(self, tape: Tape) -> None:
        """T5's biases, heads x queries x keys: looked up by the first layer, zeros for the encoder's output.

        With checkpointing the zeros want a gradient (modeling_t5.py T5Attention).
        """
        s, inside = self.side, self.inside
        table = self.modules.leaf("relative_attention_bias")
        if inside.bias is None and table is not None:
            square = s.length * s.length
            inside.bias = embedding(tape, square, table.weight, s.heads, tape.new(square, 8))
        if self.decodes and inside.cross is None:
            inside.cross = tape.new(s.heads * s.length * (inside.rows // s.batch), tape.autocast or s.dtype_bytes)
            if s.job.activation_checkpointing != "none":
                tape.source(inside.cross)

    def bias_of(self, tape: Tape, cross: bool) -> Tensor | None:
        """The biases of one of the attentions: what all layers share, in UMT5 this one's own."""
        s, inside = self.side, self.inside
        if not s.traits.own_bias:
            self.distances(tape)
            return inside.cross if cross else inside.bias
        if cross:
            return tape.new(s.heads * s.length * (inside.rows // s.batch), tape.autocast or s.dtype_bytes)
        table, square = self.modules.require("relative_attention_bias"), s.length * s.length
        return embedding(tape, square, table.weight, s.heads, tape.new(square, 8))

    def attention(self, x: Tensor, cross: bool = False) -> Tensor:
        """Attention to x itself, or to the encoder's output, and its projection."""
        s, inside = self.side, self.inside
        names = CROSS if cross else SELF
        source, rows = (inside.memory, inside.rows) if cross else (x, s.rows)
        assert source is not None
        if s.traits.query_scale:
            q = _heads(scale(project(x, self.part(names, "q"), s.rows)))
            k, v = (_heads(project(source, self.part(names, role), rows)) for role in ("k", "v"))
        else:
            q = relayout(project(x, self.part(names, "q"), s.rows))
            k = relayout(project(source, self.part(names, "k"), rows))
            v = project(source, self.part(names, "v"), rows)
        bias = self.bias_of(x.storage.tape, cross) if self.biased else None
        at = s.at(self.number)._replace(keys=rows // s.batch)
        if bias is not None:
            y = (by_distance if s.attention == "eager" else efficient)(q, k, v, bias, at, self.decodes and not cross)
        else:
            y = attend(s.attention, q, k, v, self._mask(x.storage.tape, cross), at)
        return project(y, self.part(names, "o"), s.rows)

    def _mask(self, tape: Tape, cross: bool) -> Tensor | None:
        """A decoder's causal mask exists for eager attention alone."""
        s, inside = self.side, self.inside
        if cross:
            return inside.over
        if self.decodes and s.attention == "eager" and inside.mask is None:
            inside.mask = tape.new(s.batch * s.length * s.length, s.dtype_bytes)
        return inside.mask

    def t5(self, x: Tensor) -> Tensor:
        """T5: a norm before each branch, which keeps a name of its own."""
        p = self.side.residual_dropout
        normed = self.norm(x, "layer.0.layer_norm")
        h = add(x, dropout(self.attention(normed), p))
        del normed
        if self.decodes:
            normed = self.norm(h, "layer.1.layer_norm")
            h = add(h, dropout(self.attention(normed, cross=True), p))
            del normed
        branch = self.norm(h, f"layer.{2 if self.decodes else 1}.layer_norm")
        branch = self.dense(branch)
        return add(h, dropout(branch, p))

    def dense(self, x: Tensor) -> Tensor:
        """T5's MLP; its last projection gets its input in the width of its weight, whatever autocast then does."""
        s, act = self.side, activation(self.side.activation)
        gate, down = self.modules.role("gate"), self.modules.need("down")
        up = self.modules.need("up")
        if gate is None:
            h = project(x, up, s.rows)
            h = act(h)
            h = dropout(h, s.residual_dropout)
            h = to(h, down.weight.e)
            return project(h, down, s.rows)
        first = act(project(x, gate, s.rows))
        second = project(x, up, s.rows)
        h = mul(first, second)
        h = dropout(h, s.residual_dropout)
        h = to(h, down.weight.e)
        return project(h, down, s.rows)

    def bart(self, x: Tensor) -> Tensor:
        """BART, Marian: a norm behind each sum."""
        p = self.side.residual_dropout
        h = self.attention(x)
        h = dropout(h, p)
        h = add(x, h)
        h = self.norm(h, "self_attn_layer_norm")
        if self.decodes:
            residual = h
            h = self.attention(h, cross=True)
            h = dropout(h, p)
            h = add(residual, h)
            h = self.norm(h, "encoder_attn_layer_norm")
        residual = h
        h = self.plain(h)
        h = add(residual, h)
        return self.norm(h, "final_layer_norm")

    def mbart(self, x: Tensor) -> Tensor:
        """mBART, Pegasus, Whisper, M2M100: a norm before each branch; the encoder's layers clamp float16.

        Source of the clamp: transformers 5.23 models/whisper/modeling_whisper.py `WhisperEncoderLayer.forward`.
        """
        p = self.side.residual_dropout
        h = self.norm(x, "self_attn_layer_norm")
        h = self.attention(h)
        h = dropout(h, p)
        h = add(x, h)
        if self.decodes:
            residual = h
            h = self.norm(h, "encoder_attn_layer_norm")
            h = self.attention(h, cross=True)
            h = dropout(h, p)
            h = add(residual, h)
        residual = h
        h = self.norm(h, "final_layer_norm")
        h = self.plain(h)
        h = add(residual, h)
        clamps = not self.decodes and h.e == 2 and self.side.job.weights.dtype == "float16"
        return clamp(h) if clamps else h

    def plain(self, h: Tensor) -> Tensor:
        """Two projections with dropout behind the activation and the second."""
        s = self.side
        h = activation(s.activation)(project(h, self.modules.need("up"), s.rows))
        h = dropout(h, s.activation_dropout)
        h = project(h, self.modules.need("down"), s.rows)
        return dropout(h, s.residual_dropout)


def _heads(x: Tensor) -> Tensor:
    """Heads laid out one after the other by a copy (Whisper); the gradient is copied back."""
    y = copied(x)
    y.heads_first = True
    return y


@labelled("mask and scores")
def by_distance(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, at: Heads, causal: bool) -> Tensor:
    """T5's eager attention: scores times one, plus the bias, plus the mask, softmax in the width that this gives."""
    tape, moved = q.storage.tape, at.batch > 1
    scores = product(copied(q) if moved else q, copied(k) if moved else k, at.scores)
    scores = scale(scores)
    scores = add(scores, bias)
    if causal:
        scores = add(scores, tape.new(at.batch * at.length * at.length, q.e))
    weights = softmax(scores, (tape.autocast and 4) or scores.e)
    del scores
    weights = dropout(weights, at.dropout)
    tape.returned = weights.storage
    y = product(weights, copied(v) if moved else v, q.n)
    return copied(y) if moved else contiguous(y)


@labelled("output and statistics")
def efficient(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, at: Heads, causal: bool) -> Tensor:
    """The memory-efficient kernel with a bias that wants a gradient, one for every sequence before they are summed."""
    tape = q.storage.tape
    e = tape.autocast or q.e
    mask = masked(bias, at.length * at.length) if causal else bias if at.keys != at.length else contiguous(bias)
    mask = to(mask, e)
    q, k, v = to(q, e), to(k, e), to(v, e)
    n, kn, vn, rows = q.n, k.n, v.n, at.batch * at.heads * at.length
    y = tape.new(n, e)
    lse = tape.new(at.batch * at.heads * up_to(at.length, 32), 4)
    kept = (q.storage, k.storage, v.storage, y.storage, lse, mask.storage)
    wanted, scores = mask.node is not None, at.scores

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor | None, ...]:
        found = tape.new(n, e), tape.new(kn, e), tape.new(vn, e), tape.new(scores, e) if wanted else None
        tape.scratch(4 * rows * (1 + at.head_dim))
        return found

    y.node = tape.node((q, k, v, mask), back)
    return y


ORDERS = {"t5": Block.t5, "bart": Block.bart, "mbart": Block.mbart}
