"""Mllama: a tower over the tiles of an image, and layers of the decoder that attend to what it makes.

The tower's layers are no `GradientCheckpointingLayer`: with activation checkpointing they keep all, too, from
transformers 4.55 on (`checkpointed_tower` in modeling.json). Its stacks return the outputs of all their layers, which
the tower's forward function holds to its end.
Source: transformers 5.23 models/mllama/modeling_mllama.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..adapters.linear import project
from ..frameworks.modeling import still
from ..frameworks.release import reentrant
from ..layers.attention.attention import head_norm, head_norms
from ..layers.attention.kernels import attend
from ..tape.indexing import cat, embedding, expand, padded, stack, window
from ..tape.labels import labelled
from ..tape.ops import add, leaf, mul, relayout, scale, unary
from .vision_encoder import Block, Layers, pixels_in, tanh_gated

if TYPE_CHECKING:
    from ..adapters.modules import Linear
    from ..layers.decoder import Layer
    from ..layers.setting import Setting
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor

PART = "vision tower"

BETWEEN = (3, 7, 15, 23, 30)
"""MllamaVisionConfig's default (configuration_mllama.py `intermediate_layers_indices`)."""

GLOBAL = "global"
"""What the second stack's name has and the first one's has not."""


class Memory(NamedTuple):
    """What decoder layers attend to.

    states  the images' features, `rows` of them;  mask  which of them each token sees
    seeing  0 for tokens that see none
    """

    states: Tensor
    rows: int
    mask: Tensor
    seeing: Tensor


def remembered(tape: Tape, s: Setting) -> tuple[Memory, Tensor]:
    """The tower, the projector behind it, and the masks of cross-attention; what the tower made is held beside them."""
    assert s.reader is not None
    assert s.pictures is not None
    made = Tiles(s, s.model, s.reader, s.pictures).run_tiles(tape)
    rows = s.pictures.images * s.pictures.tokens
    states = project(made, s.towers().require("multi_modal_projector"), rows)
    mask, seeing = _masks(tape, s, rows // s.batch)
    return Memory(states, rows, mask, seeing), made


@labelled("masks of images", part="before the layers")
def _masks(tape: Tape, s: Setting, keys: int) -> tuple[Tensor, Tensor]:
    """`_prepare_cross_attention_mask`: int64 of all patches, turned around in float32 and the weights' width."""
    e, n = s.towers().require("class_embedding").weight.e, s.rows * keys
    whole = tape.new(n, 8)
    turned = tape.new(n, 4)
    turned = tape.new(n, e) if e < 4 else turned
    mask = _forbidden(tape, n, e)
    del whole
    tape.scratch(n)
    seeing = tape.new(s.rows, e)
    del turned
    return mask, seeing


@labelled("masks of images", part="before the layers")
def _forbidden(tape: Tape, n: int, e: int) -> Tensor:
    condition = tape.new(n, 1)
    y = tape.new(n, e)
    del condition
    return y


class Tiles(Layers):
    """The tower over all tiles of each image, which attend to each other."""

    @labelled("masks of tiles")
    def run_tiles(self, tape: Tape) -> Tensor:
        """The last hidden states beside those of some layers in between, for every patch of every tile."""
        seen, outside = self.seen, self.outside
        tiles = seen.images * seen.tiles
        patches = pixels_in(self, tape)
        width = patches.n // (tiles * seen.side**2)
        real = tiles * (seen.side**2 + 1) * width
        h = self._placed(patches, "pre_tile_positional_embedding")
        first = leaf(tape, outside.require("class_embedding").weight)
        h = cat((expand(first, tiles * width), h))
        h = self._positions(h)
        h = self.norm(h, outside.require("layernorm_pre"), real // width)
        h = padded(h, self.rows * width)
        mask = self._mask(tape, h.e)
        local = self._through(h, False, mask)
        h = local[-1]
        h = self.norm(h, outside.require("layernorm_post"), self.rows)
        h = self._placed(h, "post_tile_positional_embedding")
        last = self._through(h, True, mask)
        h = last[-1]
        h = window(h, real) if real < h.n else h
        between = stack([local[min(number, len(local) - 1)] for number in self._between()])
        between = window(between, between.n // self.rows * (real // width)) if real < self.rows * width else between
        return cat((h, between))

    @labelled("pixels")
    def _placed(self, x: Tensor, name: str) -> Tensor:
        """Each tile's embedding, by the image's aspect ratio, times a gate's tanh, added to all its patches."""
        tape, images = x.storage.tape, self.seen.images
        table = self.outside.require(f"{name}.embedding")
        found = embedding(tape, images, table.weight, table.weight.n // table.out, tape.new(images, 8))
        return add(x, tanh_gated(found, self.outside.require(f"{name}.gate")))

    def _positions(self, x: Tensor) -> Tensor:
        """Positions in a tile, less what the gate lets through of those of each tile."""
        tape, images, outside = x.storage.tape, self.seen.images, self.outside
        table, tiles = (
            outside.require(f"gated_positional_embedding.{name}") for name in ("embedding", "tile_embedding")
        )
        gate = outside.require("gated_positional_embedding.gate")
        x = add(x, mul(scale(_tanh(tape, gate)), leaf(tape, table.weight)))
        found = embedding(tape, images, tiles.weight, tiles.weight.n // tiles.out, tape.new(images, 8))
        return add(x, tanh_gated(found, gate))

    def _mask(self, tape: Tape, e: int) -> Tensor:
        """Every patch of an image beside every other: a product of vectors in autocast's width, times a number."""
        n, e = self.seen.images * self.seen.patches**2, tape.autocast or e
        product = tape.new(n, e)
        y = tape.new(n, e)
        del product
        return y

    def _through(self, h: Tensor, last: bool, mask: Tensor) -> list[Tensor]:
        """The outputs of one stack's layers; a pipeline's stage may lack it, so that its input is handed on."""
        found = ((name, n) for name, n in self.stacks.items() if (GLOBAL in name) == last)
        self.prefix, count = next(found, ("", 0))
        states: list[Tensor] = []
        tape = h.storage.tape
        for number in range(count):
            block, mode = Block(self, number, None, mask), self.s.job.activation_checkpointing
            again = mode in ("full", "offload") and still("checkpointed_tower", self.s.job, self.s.model)
            h = tape.checkpoint(block, h, mode, reentrant(self.s.job)) if again else block(h)
            states.append(h)
        return states or [h]

    def _between(self) -> list[int]:
        """The layers whose outputs are handed on: as many as the projector reads beside the last."""
        stated = self.fields.get("intermediate_layers_indices")
        return list(stated) if isinstance(stated, list) else list(BETWEEN)


def _tanh(tape: Tape, gate: Linear) -> Tensor:
    return unary(leaf(tape, gate.weight), save_input=False, save_output=True)


@labelled(part="residual stream")
def crossed_layer(layer: Layer, x: Tensor) -> Tensor:
    """A layer that attends to images: both branches times a gate's tanh, the MLP's also zero where nothing is seen."""
    memory, modules = layer.memory, layer.modules
    assert memory is not None
    residual = x
    h = layer.norm(x, 0)
    h = cross_attention(layer, h, memory)
    h = add(residual, tanh_gated(h, modules.require("cross_attn_attn_gate")))
    residual = h
    h = layer.norm(h, 2)
    h = layer.mlp(h)
    h = mul(memory.seeing, h)
    return add(residual, tanh_gated(h, modules.require("cross_attn_mlp_gate")))


@labelled(part="attention to images")
def cross_attention(layer: Layer, x: Tensor, memory: Memory) -> Tensor:
    """Queries of the tokens, keys and values of the images, each of both normed behind its projection."""
    s, modules, at = layer.s, layer.modules, layer.at
    norm, (first, second) = head_norm(s), head_norms(modules)
    q = norm(relayout(project(x, modules.need("q"), s.rows)), first, s.rows * at.heads)
    k = relayout(project(memory.states, modules.need("k"), memory.rows))
    v = project(memory.states, modules.need("v"), memory.rows)
    k = norm(k, second, memory.rows * at.kv_heads)
    k, v = q.storage.tape.cached(k, v)
    y = attend(s.attention, q, k, v, memory.mask, at._replace(keys=memory.rows // s.batch))
    return project(y, modules.need("o"), s.rows)
