"""Gemma 4's tower: every image is a budget of patches, padded and masked, that are pooled to soft tokens in float32.

Source: transformers 5.23 models/gemma4/modeling_gemma4.py (Gemma4VisionModel, Gemma4VisionPooler,
Gemma4MultimodalEmbedder).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..adapters.linear import project
from ..frameworks.release import reentrant
from ..layers.activation import activation
from ..layers.attention.kernels import Heads, attend
from ..layers.attention.rope import Table, turned
from ..layers.norms import NORMS
from ..tape.indexing import cat, gather, split
from ..tape.labels import labelled
from ..tape.matmuls import product
from ..tape.ops import add, made, masked, mul, scale, shift, to
from ..tape.tensor import Tensor
from .vision_encoder import Features, Layers

if TYPE_CHECKING:
    from ..adapters.modules import Linear
    from ..tape.tape import Tape

PART = "vision tower"

HEAD = 64
"""Width of a head: Gemma4VisionConfig's default (configuration_gemma4.py `head_dim`)."""

norm = NORMS["rms_float"]


class SoftTokens(Layers):
    """The tower over the patches of all images, those that only pad among them."""

    @labelled("masks and rotary tables")
    def run(self, tape: Tape) -> Features:
        """One row for each soft token."""
        embeds = self._placed(tape)
        size, rows = int(self.fields.get("head_dim") or HEAD), self.rows
        e = embeds.e
        mask = tape.new(rows * self.seen.patches, e if self.s.attention == "eager" else 1)
        cos, sin = tape.new(rows * self.heads * size // self.heads, e), tape.new(rows * size, e)
        halves = Table(
            Tensor(cos.storage, cos.n // 2, e), Tensor(sin.storage, sin.n // 2, e), size // 2, size // 2, rows
        )
        clips = bool(self.fields.get("use_clipped_linears"))
        mode = self.s.job.activation_checkpointing
        h = embeds
        for number in range(self.count):
            block = SoftBlock(self, number, halves, mask, size, clips)
            again = mode in ("full", "offload")
            h = tape.checkpoint(block, h, mode, reentrant(self.s.job)) if again else block(h)
            del block
        pooled = self._pooled(h)
        width = pooled.n // (self.seen.images * (self.seen.patches // self.seen.merge**2))
        real = self.seen.images * self.seen.tokens
        pooled = gather(pooled, real * width, tape.new(real, 8))
        if self.fields.get("standardize"):
            pooled = mul(shift(pooled), tape.new(width, 4))
        pooled = to(pooled, e)
        return Features(pooled, (pooled,))

    @labelled("pixels")
    def _placed(self, tape: Tape) -> Tensor:
        """Pixels scaled in float32 and projected, and both coordinates looked up, without those of padding."""
        s, seen, rows = self.s, self.seen, self.rows
        weight = self.outside.require("patch_embedder.input_proj")
        given = tape.new(seen.images * seen.pixels, 4)
        s.pixels.append(given.storage)
        pixels = scale(shift(given))
        pixels = to(pixels, weight.weight.e)
        h = project(pixels, weight, rows)
        table = self.outside.require("position_embedding_table")
        first, second = (coordinate(tape, rows, h.n // rows, table) for _ in range(2))
        places = add(first, second)
        places = masked(places, rows)
        return add(h, places)

    @labelled("weights of the pooling")
    def _pooled(self, x: Tensor) -> Tensor:
        """Patches averaged to tokens by a product with their weights, one-hot in int64 before they are float32."""
        tape, seen = x.storage.tape, self.seen
        length = seen.patches // seen.merge**2
        h = masked(x, self.rows)
        codes = tape.new(self.rows * length, 8)
        weights = to(codes, 4)
        del codes
        weights = scale(weights)
        y = product(weights, to(h, 4), h.n // seen.merge**2)
        y = to(y, h.e)
        tape.scratch(weights.n)
        del weights, h
        return scale(to(y, 4))


class SoftBlock:
    """One layer: norms on both sides of attention and MLP."""

    def __init__(self, layers: SoftTokens, number: int, table: Table, mask: Tensor, size: int, clips: bool) -> None:
        self.layers = layers
        self.rows = layers.rows
        self.modules = layers.s.part(layers.prefix, number)
        self.table, self.mask, self.size, self.clips = table, mask, size, clips

    def __call__(self, x: Tensor) -> Tensor:
        """The layer's output."""
        residual = x
        h = self.norm(x, "input_layernorm")
        h = self.attention(h)
        h = self.norm(h, "post_attention_layernorm")
        h = add(residual, h)
        residual = h
        h = self.norm(h, "pre_feedforward_layernorm")
        h = self.mlp(h)
        h = self.norm(h, "post_feedforward_layernorm")
        return add(residual, h)

    def norm(self, x: Tensor, name: str) -> Tensor:
        """A norm of the layer by name."""
        return norm(x, self.modules.require(name), self.rows)

    def project(self, x: Tensor, name: str) -> Tensor:
        """A projection whose input and output are cut off at numbers of its own where the config says so."""
        module = self.modules.require(f"{name}.linear")
        if not self.clips:
            return project(x, module, self.rows)
        x = clipped(x)
        x = project(x, module, self.rows)
        return clipped(x)

    def attention(self, x: Tensor) -> Tensor:
        """Every image attends to itself; queries, keys and values are normed."""
        modules, rows = self.modules, self.rows
        q = self.project(x, "q_proj")
        heads = q.n // rows // self.size
        q = axial(norm(q, modules.require("q_norm"), rows * heads), self.table)
        k = self.project(x, "k_proj")
        groups = k.n // rows // self.size
        k = axial(norm(k, modules.require("k_norm"), rows * groups), self.table)
        v = norm(self.project(x, "v_proj"), None, rows * groups)
        seen = self.layers.seen
        at = Heads(seen.images, seen.patches, heads, groups, self.size, self.size)
        y = attend(self.layers.s.attention, q, k, v, self.mask, at)
        return self.project(y, "o_proj")

    def mlp(self, x: Tensor) -> Tensor:
        """Three projections with a gate."""
        act = activation(str(self.layers.fields.get("hidden_activation") or "gelu_pytorch_tanh"))
        return self.project(mul(act(self.project(x, "gate_proj")), self.project(x, "up_proj")), "down_proj")


def axial(x: Tensor, table: Table) -> Tensor:
    """Both halves of each head turned by the tables of their own direction, joined by a copy."""
    return cat([turned(part, table) for part in split(x, (x.n // 2, x.n // 2))])


@labelled("values cut off")
def clipped(x: Tensor) -> Tensor:
    """clamp between two tensors: saves x; backward is a where over two comparisons of one byte an element."""
    tape, n, e = x.storage.tape, x.n, x.e
    y = tape.new(n, e)

    def back(_: Tensor, _kept: object = x.storage) -> tuple[Tensor]:
        within = tape.new(n, 1), tape.new(n, 1)
        result = tape.new(n, e)
        del within
        return (result,)

    return made(y, tape.node((x,), back))


def coordinate(tape: Tape, rows: int, width: int, table: Linear) -> Tensor:
    """One of the table's two halves, looked up: its gradient is put into zeros of the whole table."""
    weight = table.weight
    y = tape.new(rows * width, weight.e)

    def back(_: Tensor, _kept: object = None) -> tuple[Tensor]:
        half = tape.new(weight.n // 2, weight.e)
        tape.scratch(16 * rows)
        whole = tape.new(weight.n, weight.e)
        del half
        return (whole,)

    return made(y, tape.node((weight,), back))


def soft(layers: Layers, found: Features) -> Tensor:
    """A norm without a weight, and one projection."""
    rows = layers.seen.images * layers.seen.tokens
    return project(norm(found.read, None, rows), layers.outside.require("embed_vision.embedding_projection"), rows)
