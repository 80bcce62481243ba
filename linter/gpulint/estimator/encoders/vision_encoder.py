"""Vision encoders on the tape: patches to hidden states, layer by layer.

All layers run here, before those of the text decoder: where neither the encoder nor what feeds it wants a gradient,
what a layer makes dies with it.
Source: transformers 5.23 models/*/modeling_*.py of clip, siglip, internvl, pixtral, llama4, glm4v, qwen2_vl, qwen2_5_vl
and qwen3_vl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..adapters.linear import project
from ..inputs.image_inputs import MERGERS
from ..layers.activation import activation, tanh_gated
from ..layers.attention.heads import Heads
from ..layers.attention.kernels import attend
from ..layers.attention.rope import ROPES, Table, half_wide
from ..layers.norms import NORMS
from ..tape.backward import fresh
from ..tape.indexing import cat, embedding, expand, gather, split, window
from ..tape.labels import labelled
from ..tape.matmuls import linear
from ..tape.ops import add, contiguous, leaf, mul, relayout, summed, to
from ..tape.tape import tape_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..adapters.modules import Linear, Modules
    from ..layers.dims import LayerDims
    from ..layers.state import ReplayState
    from ..layers.weights import ModelWeights
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor
    from .vision_dims import VisionDims

PART = "vision tower"


PATCHES = (
    "patch_embed.proj", "patch_embedding", "patch_embeddings.projection", "patch_conv", "patch_embedding.linear",
)  # fmt: skip
FIRST = ("norm1", "layer_norm1", "layernorm_before", "attention_norm", "input_layernorm")
SECOND = ("norm2", "layer_norm2", "layernorm_after", "ffn_norm", "post_attention_layernorm")
"""Last names of the patch embedding, and of the norms before attention and MLP."""

MASKED = ("sdpa", "eager", "flex")
"""Implementations under which images of one row are kept apart by a mask; the others are told their lengths."""


class Features(NamedTuple):
    """What a vision encoder makes.

    read        the hidden states that the projector reads
    held        what the forward function's result refers to until it ends
    deepstack   further features that the decoder's first layers are handed
    """

    read: Tensor
    held: tuple[Tensor, ...]
    deepstack: tuple[Tensor, ...] = ()


class VisionEncoder:
    """One vision encoder's layers over the images of a micro batch."""

    def __init__(self, dims: LayerDims, weights: ModelWeights, state: ReplayState, vision: VisionDims) -> None:
        self.dims = dims
        self.weights = weights
        self.state = state
        self.vision = vision
        self.rows = vision.rows
        self.outside: Modules = weights.encoders()
        self.joined: tuple[Tensor, ...] = ()
        self.prefix, self.count = vision.stack

    @property
    def implementation(self) -> str:
        """The attention kernels, which are the decoder's."""
        return self.dims.attention.implementation

    def checkpointed(self, layer: Callable[[Tensor], Tensor], h: Tensor) -> Tensor:
        """A layer's output, which is made again in backward where those of the decoder are."""
        again = self.dims.checkpoint.mode in ("full", "offload")
        if not again:
            return layer(h)
        return tape_of(h).checkpoint(layer, h, self.dims.checkpoint.mode, self.dims.checkpoint.reentrant)

    @labelled("masks and rotary tables")
    def run(self, tape: Tape) -> Features:
        """The encoder's hidden states."""
        vision, encoder = self.vision, self.vision.encoder
        feature_layer = vision.feature_layer
        h = self.embedded(tape)
        table = self._table(tape, h) if encoder.rope else None
        if vision.window is not None:
            h = gather(h, h.n, tape.new(self.rows // vision.merge**2, 8))
        read = h
        deepstack: list[Tensor] = []
        last = self.count + feature_layer + 1 if feature_layer < 0 else feature_layer
        mask = self.mask(tape, h.e)
        for number in range(self.count):
            if feature_layer and number == last:
                read = h
            h = self.checkpointed(VisionLayer(self, number, table, mask), h)
            if number in vision.deepstack:
                modules = self.weights.part(f"model.visual.{MERGERS}", vision.deepstack.index(number))
                deepstack.append(self.merged(h, modules))
        if encoder.conv:
            h = self.norm(h, self.outside.require("post_layernorm"), self.rows)
            h = _joined(h, self.outside.require("downsample"), self.rows // vision.merge**2)
        if feature_layer and last == self.count:
            read = h
        if encoder.after:
            h = self.norm(h, self.outside.require(encoder.after), self.rows)
        if encoder.pooled:
            first = window(h, vision.images.images * (h.n // self.rows))
            pooled = self.norm(first, self.outside.require(encoder.pooled), vision.images.images)
            return Features(read if feature_layer else h, (h, read, pooled))
        return Features(read, (h, read)) if feature_layer else Features(h, (h,), tuple(deepstack))

    @labelled("mask")
    def mask(self, tape: Tape, e: int) -> Tensor | None:
        """One over all images where they are in one row."""
        packed = self.vision.encoder.block == "packed" and self.implementation in MASKED
        return tape.new(self.rows**2, e) if packed else None

    def norm(self, x: Tensor, module: Linear, rows: int) -> Tensor:
        """The encoder's norm."""
        return NORMS[self.vision.encoder.norm](x, module, rows)

    def merged(self, x: Tensor, modules: Modules) -> Tensor:
        """Qwen's merger: a norm, then the patches of each token side by side through two projections."""
        rows, width = self.rows // self.vision.merge**2, x.n // self.rows
        norm = one_of(modules, "merger.ln_q", "merger.norm", "norm")
        y = self.norm(x, norm, rows if norm.weight.n > width else self.rows)
        y = project(y, one_of(modules, "merger.mlp.0", "merger.linear_fc1", "linear_fc1"), rows)
        y = activation("gelu")(y)
        return project(y, one_of(modules, "merger.mlp.2", "merger.linear_fc2", "linear_fc2"), rows)

    @labelled("pixels and positions")
    def embedded(self, tape: Tape) -> Tensor:
        """Patches, the class's own embedding before them where there is one, and positions."""
        seen = self.vision.images
        rows = seen.images * seen.side**2
        h = pixels_in(self, tape)
        width = h.n // rows
        if self.vision.encoder.block == "packed":
            h = cat((h,))
        first = self.outside.leaf("class_embedding") or self.outside.leaf("cls_token")
        where = self.outside.leaf("position_embedding")
        whole = self.outside.leaf("position_embeddings") or self.outside.leaf("positional_embedding_vlm")
        if first is not None:
            h = cat((expand(leaf(tape, first.weight), seen.images * width), h))
        if self.vision.encoder.conv and where is not None:
            h = self.norm(h, self.outside.require("post_conv_layernorm"), rows)
            h = add(h, self._sampled(tape, where, h.n))
        elif where is not None:
            count = self.rows if self.vision.encoder.each else seen.patches
            h = add(h, embedding(tape, count, where.weight, width, tape.new(count, 8)))
            if self.vision.encoder.leaves == "placed":
                wanted(self, h)
        if whole is not None:
            h = add(h, leaf(tape, whole.weight))
        if self.vision.encoder.resampled:
            h = add(h, self._resampled(tape, rows, width, h.e))
        if self.vision.encoder.before:
            h = self.norm(h, self.outside.require(self.vision.encoder.before), self.rows)
        return h

    def _resampled(self, tape: Tape, rows: int, width: int, e: int) -> Tensor:
        """Four rows of the table for each patch, times float32 weights, summed."""
        where = self.outside.require("pos_embed")
        y = embedding(tape, 4 * rows, where.weight, width, tape.new(4 * rows, 8))
        return to(summed(mul(y, tape.new(4 * rows, 4)), rows * width), e)

    def _sampled(self, tape: Tape, where: Linear, n: int) -> Tensor:
        """Positions sampled for each patch from a float32 copy of the table, back in the table's width."""
        wide, grid = to(leaf(tape, where.weight), 4), tape.new(2 * self.rows, 4)
        return to(fresh(tape.new(n, 4), wide, (wide.storage, grid)), where.weight.e)

    @labelled("cosines and sines")
    def _table(self, tape: Tape, h: Tensor) -> Table:
        """cos and sin of both directions, in float32 where they turn float32 copies."""
        part, e = h.n // self.rows // self.vision.heads, h.e if self.vision.encoder.rope == "half" else 4
        cos, sin = tape.new(self.rows * part, e), tape.new(self.rows * part, e)
        return Table(cos, sin, part, part, self.rows)


class VisionLayer:
    """One layer of a vision encoder."""

    def __init__(self, layers: VisionEncoder, number: int, table: Table | None, mask: Tensor | None) -> None:
        self.layers = layers
        self.rows = layers.rows
        self.modules = layers.weights.part(layers.prefix, number)
        self.table = table
        self.mask = mask
        window, images = layers.vision.window, layers.vision.images
        windowed = window is not None and number not in layers.vision.full
        self.pieces, self.length = window if windowed and window else (images.images, images.patches)

    def __call__(self, x: Tensor) -> Tensor:
        """The layer's output; eager probabilities go with the layer."""
        y = self.run(x)
        tape_of(x).returned = None
        return y

    def run(self, x: Tensor) -> Tensor:
        """Attention, then the MLP, each behind a norm and added to its input."""
        layers = self.layers
        first, second = one_of(self.modules, *FIRST), one_of(self.modules, *SECOND)
        if layers.vision.encoder.block == "qwen":
            h = add(x, self.joint_attention(layers.norm(x, first, self.rows)))
            return add(h, self.mlp(layers.norm(h, second, self.rows)))
        if layers.vision.encoder.block == "scaled":
            branch = self.attention(layers.norm(x, first, self.rows))
            branch = mul(branch, self.modules.require("lambda_1").weight)
            x = add(branch, x)
            h = self.mlp(layers.norm(x, second, self.rows))
            h = mul(h, self.modules.require("lambda_2").weight)
            return add(h, x)
        residual = x
        h = layers.norm(x, first, self.rows)
        h = self.attention(h)
        h = self.gated(h, "gate_attn")
        h = add(residual, h)
        residual = h
        h = layers.norm(h, second, self.rows)
        h = self.mlp(h)
        h = self.gated(h, "gate_ffn")
        return add(residual, h)

    def gated(self, x: Tensor, name: str) -> Tensor:
        """A branch times the tanh of one number, where the layer has it (Mllama's global layers)."""
        gate = self.modules.leaf(name)
        return x if gate is None else tanh_gated(x, gate)

    def attention(self, x: Tensor) -> Tensor:
        """Every image attends to itself."""
        modules, heads = self.modules, self.layers.vision.heads
        q, k, v = (project(x, modules.require(f"{name}_proj"), self.rows) for name in "qkv")
        if self.table is not None:
            q, k = ROPES[self.layers.vision.encoder.rope](relayout(q), relayout(k), self.table)
        size, one = q.n // self.rows // heads, self.mask is not None and self.layers.vision.encoder.block == "packed"
        pieces, length = (1, self.rows) if one else (self.pieces, self.length)
        at = Heads(pieces, length, heads, heads, size, size, kind=self.layers.vision.encoder.scores)
        y = attend(self.layers.implementation, q, k, v, self.mask, at)
        return project(y, one_of(modules, "out_proj", "projection_layer", "o_proj"), self.rows)

    def joint_attention(self, x: Tensor) -> Tensor:
        """Every piece of the row attends to itself in a call of its own; a copy joins what the calls made."""
        modules, heads = self.modules, self.layers.vision.heads * self.pieces
        whole = relayout(project(x, modules.require("attn.qkv"), self.rows))
        q, k, v = split(whole, (x.n, x.n, x.n))
        assert self.table is not None
        q, k = half_wide(q, k, self.table)
        size = x.n // self.rows // self.layers.vision.heads
        y = attend(self.layers.implementation, q, k, v, None, Heads(1, self.length, heads, heads, size, size))
        tape_of(x).returned = None
        joined = contiguous(y)
        return project(joined, modules.require("attn.proj"), self.rows)

    def mlp(self, x: Tensor) -> Tensor:
        """Two projections, or three with a gate."""
        act = activation(self.layers.vision.activation)
        gate = self.modules.leaf("gate_proj")
        if gate is not None:
            first = act(project(x, gate, self.rows))
            h = mul(first, project(x, self.modules.require("up_proj"), self.rows))
            del first
            return project(h, self.modules.require("down_proj"), self.rows)
        h = project(x, one_of(self.modules, "mlp.fc1", "mlp.linear_fc1"), self.rows)
        h = act(h)
        return project(h, one_of(self.modules, "mlp.fc2", "mlp.linear_fc2"), self.rows)


@labelled("pixels")
def pixels_in(layers: VisionEncoder, tape: Tape) -> Tensor:
    """Pixels, in the width of the weights, through the convolution that cuts them into patches."""
    seen = layers.vision.images
    patch = one_of(layers.outside, *PATCHES)
    unfolded = layers.outside.leaf("patch_embedding.linear") is not None
    given = tape.new(seen.images * seen.pixels, patch.weight.e if unfolded else 4)
    layers.state.pixel_values.append(given.storage)
    if layers.vision.model.split:
        given, mask = _shown(layers, given, patch.weight.e)
        layers.joined = (given, mask)
    elif seen.cut is not None:
        given = tape.new(given.n, given.e)
        layers.joined = (given,)
    rows = seen.images * seen.tiles * seen.side**2
    if unfolded:
        h = project(contiguous(tape.new(given.n, given.e)), patch, rows)
    else:
        pixels = to(given, patch.weight.e)
        h = linear(pixels, patch.weight, rows, patch.bias)
    if layers.vision.encoder.leaves == "patches":
        wanted(layers, h)
    return h


def wanted(layers: VisionEncoder, x: Tensor) -> None:
    """Where an adapter's base is checkpointed a tower's input is made to want a gradient, from transformers 5 on."""
    if layers.dims.inputs_require_grad and x.node is None and layers.vision.patches_require_grad:
        tape_of(x).source(x)


@labelled("pixels and masks of what is no padding")
def _shown(layers: VisionEncoder, given: Tensor, e: int) -> tuple[Tensor, Tensor]:
    """Idefics 3: the images that are no padding, by an index, in the width of the weights, and the int64 masks of each.

    The processor's own masks are there beside them.
    """
    tape = tape_of(given)
    mask = tape.new(layers.vision.images.images * layers.vision.images.masked, 8)
    layers.state.pixel_values.append(mask.storage)
    given = to(given, e)
    tape.scratch(given.n)
    return tape.new(given.n, e), tape.new(mask.n, 8)


def one_of(modules: Modules, *names: str) -> Linear:
    """The first module that has one of the names; raises KeyError."""
    found = next((module for name in names if (module := modules.leaf(name)) is not None), None)
    if found is None:
        raise KeyError(names[0])
    return found


def _joined(x: Tensor, module: Linear, rows: int) -> Tensor:
    """A convolution without overlap. It saves its input for a frozen weight, too (derivatives.yaml `convolution`)."""
    y = linear(x, module.weight, rows, module.bias)
    if y.node is not None and y.node.back is not None and not module.weight.trainable:
        back = y.node.back
        y.node.back = lambda g, _kept=x.storage: back(g)
    return y
