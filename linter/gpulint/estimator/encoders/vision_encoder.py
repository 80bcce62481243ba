"""Vision towers on the tape: patches to hidden states, layer by layer.

All layers run here, before those of the text decoder: where neither the tower nor what feeds it wants a gradient,
what a layer makes dies with it.
Source: transformers 5.23 models/*/modeling_*.py of clip, siglip, internvl, pixtral, llama4, glm4v, qwen2_vl, qwen2_5_vl
and qwen3_vl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...versions import older
from ..adapters.linear import project
from ..frameworks.release import reentrant
from ..inputs.image_inputs import MERGERS, deep_layers, stacks, tower, vision
from ..layers.activation import activation
from ..layers.attention.kernels import Heads, attend
from ..layers.attention.rope import ROPES, Table, half_wide
from ..layers.norms import NORMS
from ..tape.indexing import cat, embedding, expand, gather, split, window
from ..tape.labels import labelled
from ..tape.matmuls import linear
from ..tape.ops import add, contiguous, leaf, made, mul, relayout, summed, to, unary

if TYPE_CHECKING:
    from typing import Any

    from ...models.model import Model
    from ..adapters.modules import Linear, Modules
    from ..inputs.image_inputs import Pictures, Reader, Tower
    from ..layers.setting import Setting
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor

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
    """What a tower makes.

    read        the hidden states that the projector reads
    held        what the forward function's result refers to until it ends
    deep        further features that the decoder's first layers are handed
    """

    read: Tensor
    held: tuple[Tensor, ...]
    deep: tuple[Tensor, ...] = ()


class Layers:
    """One tower's layers over the images of a micro batch."""

    def __init__(self, s: Setting, model: Model, found: Reader, seen: Pictures) -> None:
        kind = tower(model, found)
        assert kind is not None
        fields = vision(model)
        self.s = s
        self.seen = seen
        self.rows = seen.rows
        self.found = found
        self.kind: Tower = kind
        self.outside: Modules = s.towers()
        self.joined: tuple[Tensor, ...] = ()
        self.fields = fields
        self.stacks = stacks(model)
        self.prefix, self.count = max(self.stacks.items(), key=lambda item: item[1])
        heads = (fields.get(name) for name in ("num_heads", "num_attention_heads", "attention_heads"))
        self.heads = int(next((count for count in heads if count), kind.heads))
        self.merge = seen.merge
        stated = model.config.get("vision_feature_layer")
        self.layer = stated if found.layer and isinstance(stated, int) else found.layer
        self.whole = tuple(fields.get("fullatt_block_indexes") or (7, 15, 23, 31)) if kind.window else ()
        self.deep = deep_layers(model)
        self.activation = str(fields.get("hidden_act") or kind.activation)
        self.window = _windows(kind, seen, fields)

    @labelled("masks and rotary tables")
    def run(self, tape: Tape) -> Features:
        """The tower's hidden states."""
        h = self.embedded(tape)
        table = self._table(tape, h) if self.kind.turned else None
        if self.window is not None:
            h = gather(h, h.n, tape.new(self.rows // self.merge**2, 8))
        read = h
        deep: list[Tensor] = []
        mode = self.s.job.activation_checkpointing
        last = self.count + self.layer + 1 if self.layer < 0 else self.layer
        mask = self.mask(tape, h.e)
        for number in range(self.count):
            if self.layer and number == last:
                read = h
            block = Block(self, number, table, mask)
            again = mode in ("full", "offload")
            h = tape.checkpoint(block, h, mode, reentrant(self.s.job)) if again else block(h)
            del block
            if number in self.deep:
                deep.append(self.merged(h, self.s.part(f"model.visual.{MERGERS}", self.deep.index(number))))
        if self.kind.conv:
            h = self.norm(h, self.outside.require("post_layernorm"), self.rows)
            h = _joined(h, self.outside.require("downsample"), self.rows // self.merge**2)
        if self.layer and last == self.count:
            read = h
        if self.kind.after:
            h = self.norm(h, self.outside.require(self.kind.after), self.rows)
        if self.kind.pooled:
            first = window(h, self.seen.images * (h.n // self.rows))
            pooled = self.norm(first, self.outside.require(self.kind.pooled), self.seen.images)
            return Features(read if self.layer else h, (h, read, pooled))
        return Features(read, (h, read)) if self.layer else Features(h, (h,), tuple(deep))

    @labelled("mask")
    def mask(self, tape: Tape, e: int) -> Tensor | None:
        """One over all images where they are in one row."""
        return tape.new(self.rows**2, e) if self.kind.block == "packed" and self.s.attention in MASKED else None

    def norm(self, x: Tensor, module: Linear, rows: int) -> Tensor:
        """The tower's norm."""
        return NORMS[self.kind.norm](x, module, rows)

    def merged(self, x: Tensor, modules: Modules) -> Tensor:
        """Qwen's merger: a norm, then the patches of each token side by side through two projections."""
        rows, width = self.rows // self.merge**2, x.n // self.rows
        norm = one_of(modules, "merger.ln_q", "merger.norm", "norm")
        y = self.norm(x, norm, rows if norm.weight.n > width else self.rows)
        y = project(y, one_of(modules, "merger.mlp.0", "merger.linear_fc1", "linear_fc1"), rows)
        y = activation("gelu")(y)
        return project(y, one_of(modules, "merger.mlp.2", "merger.linear_fc2", "linear_fc2"), rows)

    @labelled("pixels and positions")
    def embedded(self, tape: Tape) -> Tensor:
        """Patches, the class's own embedding before them where there is one, and positions."""
        seen = self.seen
        rows = seen.images * seen.side**2
        h = pixels_in(self, tape)
        width = h.n // rows
        if self.kind.block == "packed":
            h = cat((h,))
        first = self.outside.leaf("class_embedding") or self.outside.leaf("cls_token")
        where = self.outside.leaf("position_embedding")
        whole = self.outside.leaf("position_embeddings") or self.outside.leaf("positional_embedding_vlm")
        if first is not None:
            h = cat((expand(leaf(tape, first.weight), seen.images * width), h))
        if self.kind.conv and where is not None:
            h = self.norm(h, self.outside.require("post_conv_layernorm"), rows)
            h = add(h, self._sampled(tape, where, h.n))
        elif where is not None:
            count = self.rows if self.kind.each else seen.patches
            h = add(h, embedding(tape, count, where.weight, width, tape.new(count, 8)))
            if self.kind.leaves == "placed":
                wanted(self, h)
        if whole is not None:
            h = add(h, leaf(tape, whole.weight))
        if self.kind.resampled:
            h = add(h, self._resampled(tape, rows, width, h.e))
        if self.kind.before:
            h = self.norm(h, self.outside.require(self.kind.before), self.rows)
        return h

    def _resampled(self, tape: Tape, rows: int, width: int, e: int) -> Tensor:
        """Four rows of the table for each patch, times float32 weights, summed."""
        where = self.outside.require("pos_embed")
        y = embedding(tape, 4 * rows, where.weight, width, tape.new(4 * rows, 8))
        return to(summed(mul(y, tape.new(4 * rows, 4)), rows * width), e)

    def _sampled(self, tape: Tape, where: Linear, n: int) -> Tensor:
        """Positions sampled for each patch from a float32 copy of the table, back in the table's width."""
        wide, grid = to(leaf(tape, where.weight), 4), tape.new(2 * self.rows, 4)
        size = wide.n
        kept = (wide.storage, grid)
        y = made(tape.new(n, 4), tape.node((wide,), lambda _, _kept=kept: (tape.new(size, 4),)))
        return to(y, where.weight.e)

    @labelled("cosines and sines")
    def _table(self, tape: Tape, h: Tensor) -> Table:
        """cos and sin of both directions, in float32 where they turn float32 copies."""
        part, e = h.n // self.rows // self.heads, h.e if self.kind.turned == "half" else 4
        cos, sin = tape.new(self.rows * part, e), tape.new(self.rows * part, e)
        return Table(cos, sin, part, part, self.rows)


class Block:
    """One layer of a tower."""

    def __init__(self, layers: Layers, number: int, table: Table | None, mask: Tensor | None) -> None:
        self.layers = layers
        self.rows = layers.rows
        self.modules = layers.s.part(layers.prefix, number)
        self.table = table
        self.mask = mask
        windowed = layers.window is not None and number not in layers.whole
        seen = layers.seen
        self.pieces, self.length = layers.window if windowed and layers.window else (seen.images, seen.patches)

    def __call__(self, x: Tensor) -> Tensor:
        """The layer's output; eager probabilities go with the layer."""
        y = self.run(x)
        x.storage.tape.returned = None
        return y

    def run(self, x: Tensor) -> Tensor:
        """Attention, then the MLP, each behind a norm and added to its input."""
        layers = self.layers
        first, second = one_of(self.modules, *FIRST), one_of(self.modules, *SECOND)
        if layers.kind.block == "qwen":
            h = add(x, self.joint_attention(layers.norm(x, first, self.rows)))
            return add(h, self.mlp(layers.norm(h, second, self.rows)))
        if layers.kind.block == "scaled":
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
        modules, heads = self.modules, self.layers.heads
        q, k, v = (project(x, modules.require(f"{name}_proj"), self.rows) for name in "qkv")
        if self.table is not None:
            q, k = ROPES[self.layers.kind.turned](relayout(q), relayout(k), self.table)
        size, one = q.n // self.rows // heads, self.mask is not None and self.layers.kind.block == "packed"
        pieces, length = (1, self.rows) if one else (self.pieces, self.length)
        at = Heads(pieces, length, heads, heads, size, size, kind=self.layers.kind.scores)
        y = attend(self.layers.s.attention, q, k, v, self.mask, at)
        return project(y, one_of(modules, "out_proj", "projection_layer", "o_proj"), self.rows)

    def joint_attention(self, x: Tensor) -> Tensor:
        """Every piece of the row attends to itself in a call of its own; a copy joins what the calls made."""
        modules, heads = self.modules, self.layers.heads * self.pieces
        whole = relayout(project(x, modules.require("attn.qkv"), self.rows))
        q, k, v = split(whole, (x.n, x.n, x.n))
        assert self.table is not None
        q, k = half_wide(q, k, self.table)
        size = x.n // self.rows // self.layers.heads
        y = attend(self.layers.s.attention, q, k, v, None, Heads(1, self.length, heads, heads, size, size))
        x.storage.tape.returned = None
        joined = contiguous(y)
        return project(joined, modules.require("attn.proj"), self.rows)

    def mlp(self, x: Tensor) -> Tensor:
        """Two projections, or three with a gate."""
        act = activation(self.layers.activation)
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
def pixels_in(layers: Layers, tape: Tape) -> Tensor:
    """Pixels, in the width of the weights, through the convolution that cuts them into patches."""
    s, seen = layers.s, layers.seen
    patch = one_of(layers.outside, *PATCHES)
    unfolded = layers.outside.leaf("patch_embedding.linear") is not None
    given = tape.new(seen.images * seen.pixels, patch.weight.e if unfolded else 4)
    s.pixels.append(given.storage)
    if layers.found.split:
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
    if layers.kind.leaves == "patches":
        wanted(layers, h)
    return h


def wanted(layers: Layers, x: Tensor) -> None:
    """Where an adapter's base is checkpointed a tower's input is made to want a gradient, from transformers 5 on."""
    s = layers.s
    if s.leaf_inputs and x.node is None and not older(s.job.versions.get("transformers"), "5"):
        x.storage.tape.source(x)


@labelled("pixels and masks of what is no padding")
def _shown(layers: Layers, given: Tensor, e: int) -> tuple[Tensor, Tensor]:
    """Idefics 3: the images that are no padding, by an index, in the width of the weights, and the int64 masks of each.

    The processor's own masks are there beside them.
    """
    tape = given.storage.tape
    mask = tape.new(layers.seen.images * layers.seen.masked, 8)
    layers.s.pixels.append(mask.storage)
    given = to(given, e)
    tape.scratch(given.n)
    return tape.new(given.n, e), tape.new(mask.n, 8)


def tanh_gated(x: Tensor, gate: Linear) -> Tensor:
    """gate.tanh() * x, the gate a parameter of one number with a dimension: float32 gates widen x."""
    return mul(unary(leaf(x.storage.tape, gate.weight), save_input=False, save_output=True), x)


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


def _windows(kind: Tower, seen: Pictures, fields: dict[str, Any]) -> tuple[int, int] | None:
    """How many windows all images are cut into, and the patches of each; None without windows."""
    if not kind.window:
        return None
    edge = max(1, int(fields.get("window_size") or kind.window) // int(fields.get("patch_size") or 14))
    count = seen.images * (-(-seen.side // edge)) ** 2
    return count, max(1, seen.rows // count)
