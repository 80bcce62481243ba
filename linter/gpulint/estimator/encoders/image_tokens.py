"""Gemma 4's tower: every image is a budget of patches, padded and masked, that are pooled to image tokens in float32.

Source: transformers 5.23 models/gemma4/modeling_gemma4.py (Gemma4VisionModel, Gemma4VisionPooler,
Gemma4MultimodalEmbedder).

SigLIP 2 over patches that are padded to one number, as LFM2-VL hands them on: tiles of an image and the whole.

Source: transformers 5.23 models/siglip2/modeling_siglip2.py, lfm2_vl/modeling_lfm2_vl.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..adapters.linear import project
from ..layers.activation import activation
from ..layers.attention.heads import Heads
from ..layers.attention.kernels import attend
from ..layers.attention.rope import Table, rotated
from ..layers.norms import NORMS
from ..tape.backward import made
from ..tape.indexing import assigned, cat, gather, resized, split, window
from ..tape.labels import labelled
from ..tape.matmuls import product
from ..tape.ops import add, copied, leaf, masked, mul, scale, shift, to
from ..tape.tape import tape_of
from ..tape.tensor import Tensor
from .vision_encoder import PATCHES, Features, VisionEncoder, one_of, wanted

if TYPE_CHECKING:
    from ..adapters.modules import Linear
    from ..tape.tape import Tape


PART = "vision tower"

norm = NORMS["rms_float"]


class ImageTokens(VisionEncoder):
    """The tower over the patches of all images, those that only pad among them."""

    @labelled("masks and rotary tables")
    def run(self, tape: Tape) -> Features:
        """One row for each image token."""
        embeds = self._placed(tape)
        size, rows = self.vision.head_dim, self.rows
        e = embeds.e
        mask = tape.new(rows * self.vision.images.patches, e if self.implementation == "eager" else 1)
        cos, sin = tape.new(rows * size, e), tape.new(rows * size, e)
        halves = Table(
            Tensor(cos.storage, cos.n // 2, e), Tensor(sin.storage, sin.n // 2, e), size // 2, size // 2, rows
        )
        h = embeds
        for number in range(self.count):
            h = self.checkpointed(ImageTokenLayer(self, number, halves, mask), h)
        pooled = self._pooled(h)
        images, real = self.vision.images, self.vision.token_rows
        width = pooled.n // (images.images * (images.patches // images.merge**2))
        pooled = gather(pooled, real * width, tape.new(real, 8))
        if self.vision.standardizes:
            pooled = mul(shift(pooled), tape.new(width, 4))
        pooled = to(pooled, e)
        return Features(pooled, (pooled,))

    @labelled("pixels")
    def _placed(self, tape: Tape) -> Tensor:
        """Pixels scaled in float32 and projected, and both coordinates looked up, without those of padding."""
        seen, rows = self.vision.images, self.rows
        weight = self.outside.require("patch_embedder.input_proj")
        given = tape.new(seen.images * seen.pixels, 4)
        self.state.pixel_values.append(given.storage)
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
        tape, seen = tape_of(x), self.vision.images
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


class ImageTokenLayer:
    """One layer: norms on both sides of attention and MLP."""

    def __init__(self, layers: ImageTokens, number: int, table: Table, mask: Tensor) -> None:
        self.layers = layers
        self.rows = layers.rows
        self.modules = layers.weights.part(layers.prefix, number)
        self.table, self.mask = table, mask
        self.size, self.clips = layers.vision.head_dim, layers.vision.clips

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
        seen = self.layers.vision.images
        at = Heads(seen.images, seen.patches, heads, groups, self.size, self.size)
        y = attend(self.layers.implementation, q, k, v, self.mask, at)
        return self.project(y, "o_proj")

    def mlp(self, x: Tensor) -> Tensor:
        """Three projections with a gate."""
        act = activation(self.layers.vision.activation)
        return self.project(mul(act(self.project(x, "gate_proj")), self.project(x, "up_proj")), "down_proj")


def axial(x: Tensor, table: Table) -> Tensor:
    """Both halves of each head rotated by the tables of their own direction, joined by a copy."""
    return cat([rotated(part, table) for part in split(x, (x.n // 2, x.n // 2))])


@labelled("values cut off")
def clipped(x: Tensor) -> Tensor:
    """clamp between two tensors: saves x; backward is a where over two comparisons of one byte an element."""
    tape, n, e = tape_of(x), x.n, x.e
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


def image_token_projector(layers: VisionEncoder, found: Features) -> Tensor:
    """A norm without a weight, and one projection."""
    rows = layers.vision.token_rows
    return project(norm(found.read, None, rows), layers.outside.require("embed_vision.embedding_projection"), rows)


class Naflex(VisionEncoder):
    """The tower over padded patches; where there is padding every tile has a mask of its own."""

    @labelled("pixels and positions")
    def embedded(self, tape: Tape) -> Tensor:
        """Patches as the processor cuts them, projected, and positions scaled to each tile's own size."""
        seen = self.vision.images
        patch = one_of(self.outside, *PATCHES)
        given = tape.new(seen.images * seen.pixels, 4)
        self.state.pixel_values.append(given.storage)
        h = project(to(given, patch.weight.e), patch, self.rows, lambda base: wanted(self, base))
        table = self.outside.require("position_embedding").weight
        width, places = h.n // self.rows, tape.new(h.n, table.e)
        for _ in range(seen.images):
            scaled = resized(leaf(tape, table), seen.side**2 * width)
            places = assigned(places, scaled)
            places = assigned(places, window(scaled, width))
        return add(h, places)

    @labelled("mask")
    def mask(self, tape: Tape, e: int) -> Tensor | None:
        """One byte for every two patches of a tile, or a number to add to their score."""
        seen = self.vision.images
        if seen.patches == seen.side**2:
            return None
        return tape.new(self.rows * seen.patches, e if self.implementation == "eager" else 1)


def unshuffled(layers: VisionEncoder, found: Features) -> tuple[Tensor, ...]:
    """Each tile by itself: the patches of each token side by side by a copy, a norm and two projections."""
    seen, outside = layers.vision.images, layers.outside
    act = activation(layers.vision.projector_activation)
    norm = outside.leaf("layer_norm") if layers.vision.projector_norm else None
    each, parts = found.read.n // seen.images, []
    for tile in split(found.read, (each,) * seen.images):
        h = copied(window(tile, each // seen.patches * seen.side**2))
        if norm is not None:
            h = NORMS["layer"](h, norm, seen.tokens)
        h = act(project(h, outside.require("linear_1"), seen.tokens))
        parts.append(project(h, outside.require("linear_2"), seen.tokens))
    return tuple(parts)
