"""Vision towers on the tape: patches to hidden states, layer by layer.

All layers run here, before those of the text decoder: where neither the tower nor what feeds it wants a gradient,
what a layer makes dies with it.
Source: transformers 5.23 models/{clip,siglip,qwen2_vl,qwen2_5_vl,qwen3_vl}/modeling_*.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .activation import activation
from .adapters import project
from .indexing import cat, embedding, expand, gather, split, window
from .kernels import Heads, attend
from .matmuls import linear
from .norms import NORMS
from .ops import add, contiguous, leaf, mul, relayout, summed, to
from .pictures import MERGERS, deep_layers, stacks, tower, vision
from .release import reentrant
from .rope import Table, half_wide
from .versions import older

if TYPE_CHECKING:
    from typing import Any

    from ..models.model import Model
    from .modules import Linear, Modules
    from .pictures import Pictures, Reader, Tower
    from .setting import Setting
    from .tape import Tape
    from .tensor import Tensor


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
        self.prefix, self.count = max(stacks(model).items(), key=lambda item: item[1])
        self.heads = int(fields.get("num_heads") or fields.get("num_attention_heads") or kind.heads)
        self.merge = int(fields.get("spatial_merge_size") or 2)
        self.whole = tuple(fields.get("fullatt_block_indexes") or (7, 15, 23, 31)) if kind.window else ()
        self.deep = deep_layers(model)
        self.activation = str(fields.get("hidden_act") or kind.activation)
        self.window = _windows(kind, seen, fields)

    def run(self, tape: Tape) -> Features:
        """The tower's hidden states."""
        h = self._embedded(tape)
        table = self._table(tape, h) if self.kind.turned else None
        if self.window is not None:
            h = gather(h, h.n, tape.new(self.rows // self.merge**2, 8))
        read = h
        deep: list[Tensor] = []
        mode = self.s.job.activation_checkpointing
        last = self.count + self.found.layer + 1
        for number in range(self.count):
            if self.found.layer and number == last:
                read = h
            block = Block(self, number, table)
            again = mode in ("full", "offload")
            h = tape.checkpoint(block, h, mode, reentrant(self.s.job)) if again else block(h)
            del block
            if number in self.deep:
                deep.append(self.merged(h, self.s.part(f"model.visual.{MERGERS}", self.deep.index(number))))
        if self.kind.after:
            h = self.norm(h, self.outside.require(self.kind.after), self.rows)
        if self.kind.pooled:
            first = window(h, self.seen.images * (h.n // self.rows))
            pooled = self.norm(first, self.outside.require(self.kind.pooled), self.seen.images)
            return Features(read, (h, read, pooled), tuple(deep))
        return Features(h, (h,), tuple(deep))

    def norm(self, x: Tensor, module: Linear, rows: int) -> Tensor:
        """The tower's norm."""
        return NORMS[self.kind.norm](x, module, rows)

    def merged(self, x: Tensor, modules: Modules) -> Tensor:
        """Qwen's merger: a norm, then the patches of each token side by side through two projections."""
        rows, width = self.rows // self.merge**2, x.n // self.rows
        norm = _one(modules, "merger.ln_q", "merger.norm", "norm")
        y = self.norm(x, norm, rows if norm.weight.n > width else self.rows)
        y = project(y, _one(modules, "merger.mlp.0", "merger.linear_fc1", "linear_fc1"), rows)
        y = activation("gelu")(y)
        return project(y, _one(modules, "merger.mlp.2", "merger.linear_fc2", "linear_fc2"), rows)

    def _embedded(self, tape: Tape) -> Tensor:
        """Pixels, in the width of the weights, through the convolution that cuts them into patches; then positions."""
        s, seen = self.s, self.seen
        patch = _one(self.outside, "patch_embed.proj", "patch_embedding", "patch_embeddings.projection")
        given = tape.new(seen.images * seen.pixels, 4)
        s.pixels.append(given.storage)
        pixels = to(given, patch.weight.e)
        rows = seen.images * seen.side**2
        h = linear(pixels, patch.weight, rows, patch.bias)
        width = h.n // rows
        asked = s.leaf_inputs and self.kind.leaves and not older(s.job.versions.get("transformers"), "5")
        if asked and h.node is None:
            tape.source(h)
        first = self.outside.leaf("class_embedding") or self.outside.leaf("cls_token")
        where, whole = self.outside.leaf("position_embedding"), self.outside.leaf("position_embeddings")
        if first is not None:
            h = cat((expand(leaf(tape, first.weight), seen.images * width), h))
        if where is not None:
            h = add(h, embedding(tape, seen.patches, where.weight, width, tape.new(seen.patches, 8)))
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

    def _table(self, tape: Tape, h: Tensor) -> Table:
        """cos and sin of both directions, in float32."""
        part = h.n // self.rows // self.heads
        cos, sin = tape.new(self.rows * part, 4), tape.new(self.rows * part, 4)
        return Table(cos, sin, part, part, self.rows)


class Block:
    """One layer of a tower."""

    def __init__(self, layers: Layers, number: int, table: Table | None) -> None:
        self.layers = layers
        self.rows = layers.rows
        self.modules = layers.s.part(layers.prefix, number)
        self.table = table
        windowed = layers.window is not None and number not in layers.whole
        seen = layers.seen
        self.pieces, self.length = layers.window if windowed and layers.window else (seen.images, seen.patches)

    def __call__(self, x: Tensor) -> Tensor:
        """The layer's output: attention, then the MLP, each behind a norm and added to its input."""
        layers = self.layers
        first = _one(self.modules, "norm1", "layer_norm1", "layernorm_before")
        second = _one(self.modules, "norm2", "layer_norm2", "layernorm_after")
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
        h = add(residual, h)
        residual = h
        h = layers.norm(h, second, self.rows)
        h = self.mlp(h)
        return add(residual, h)

    def attention(self, x: Tensor) -> Tensor:
        """Every image attends to itself."""
        modules, heads = self.modules, self.layers.heads
        q, k, v = (project(x, modules.require(f"{name}_proj"), self.rows) for name in "qkv")
        size = q.n // self.rows // heads
        at = Heads(self.pieces, self.length, heads, heads, size, size, kind=self.layers.kind.scores)
        y = attend(self.layers.s.attention, q, k, v, None, at)
        return project(y, _one(modules, "out_proj", "projection_layer"), self.rows)

    def joint_attention(self, x: Tensor) -> Tensor:
        """Every piece of the row attends to itself in a call of its own; a copy joins what the calls made."""
        modules, heads = self.modules, self.layers.heads * self.pieces
        whole = relayout(project(x, modules.require("attn.qkv"), self.rows))
        q, k, v = split(whole, (x.n, x.n, x.n))
        assert self.table is not None
        q, k = half_wide(q, k, self.table)
        size = x.n // self.rows // self.layers.heads
        y = attend(self.layers.s.attention, q, k, v, None, Heads(1, self.length, heads, heads, size, size))
        joined = contiguous(y)
        return project(joined, modules.require("attn.proj"), self.rows)

    def mlp(self, x: Tensor) -> Tensor:
        """Two projections, or three with a gate."""
        act = activation(self.layers.activation)
        gate = self.modules.leaf("mlp.gate_proj")
        if gate is not None:
            first = act(project(x, gate, self.rows))
            h = mul(first, project(x, self.modules.require("mlp.up_proj"), self.rows))
            del first
            return project(h, self.modules.require("mlp.down_proj"), self.rows)
        h = project(x, _one(self.modules, "mlp.fc1", "mlp.linear_fc1"), self.rows)
        h = act(h)
        return project(h, _one(self.modules, "mlp.fc2", "mlp.linear_fc2"), self.rows)


def _one(modules: Modules, *names: str) -> Linear:
    """The first module that has one of the names; raises KeyError."""
    found = next((module for name in names if (module := modules.leaf(name)) is not None), None)
    if found is None:
        raise KeyError(names[0])
    return found


def _windows(kind: Tower, seen: Pictures, fields: dict[str, Any]) -> tuple[int, int] | None:
    """How many windows all images are cut into, and the patches of each; None without windows."""
    if not kind.window:
        return None
    edge = max(1, int(fields.get("window_size") or kind.window) // int(fields.get("patch_size") or 14))
    count = seen.images * (-(-seen.side // edge)) ** 2
    return count, max(1, seen.rows // count)
