"""Mllama: an encoder of the tiles of an image, to whose states layers of the decoder attend.

The encoder's layers are no `GradientCheckpointingLayer`: with activation checkpointing they keep all, too, from
transformers 4.55 on (`CHECKPOINTED_TOWER` in upstream/transformers_models.py). Its stacks return the outputs of all
their layers, which the encoder's forward function holds to its end.
Source: transformers 5.23 models/mllama/modeling_mllama.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..adapters.linear import project
from ..estimate import NotEstimable
from ..layers.activation import tanh_gated
from ..layers.layer_inputs import EncoderStates
from ..tape.indexing import cat, embedding, expand, padded, stack, window
from ..tape.labels import labelled
from ..tape.ops import add, leaf, mul, scale, unary
from ..tape.tape import tape_of
from .vision_encoder import VisionEncoder, VisionLayer, pixels_in

if TYPE_CHECKING:
    from ..adapters.modules import Linear
    from ..layers.dims import LayerDims
    from ..layers.state import ReplayState
    from ..layers.weights import ModelWeights
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor
    from .vision_dims import VisionDims

PART = "vision tower"

GLOBAL = "global"
"""What the second stack's name has and the first one's has not."""


def encoder_states(
    tape: Tape, dims: LayerDims, weights: ModelWeights, state: ReplayState, vision: VisionDims
) -> tuple[EncoderStates, Tensor]:
    """The encoder, the projector behind it, and the masks of cross-attention; what it made is held beside them.

    Raises NotEstimable where another pipeline stage has a part of the encoder.
    """
    if not any(GLOBAL in item.name for item in weights.items):
        raise NotEstimable("layers that attend to images are not modelled over pipeline stages")
    encoder = Tiles(dims, weights, state, vision)
    made = encoder.run_tiles(tape)
    rows = vision.token_rows
    states = project(made, encoder.outside.require("multi_modal_projector"), rows)
    mask, seeing = _masks(tape, dims, encoder.outside.require("class_embedding").weight.e, rows // dims.batch)
    return EncoderStates(states, rows, mask, seeing), made


@labelled("masks of images", part="before the layers")
def _masks(tape: Tape, dims: LayerDims, e: int, keys: int) -> tuple[Tensor, Tensor]:
    """`_prepare_cross_attention_mask`: int64 of all patches, turned around in float32 and the weights' width."""
    n = dims.rows * keys
    whole = tape.new(n, 8)
    turned = tape.new(n, 4)
    turned = tape.new(n, e) if e < 4 else turned
    mask = _forbidden(tape, n, e)
    del whole
    tape.scratch(n)
    seeing = tape.new(dims.rows, e)
    del turned
    return mask, seeing


@labelled("masks of images", part="before the layers")
def _forbidden(tape: Tape, n: int, e: int) -> Tensor:
    condition = tape.new(n, 1)
    y = tape.new(n, e)
    del condition
    return y


class Tiles(VisionEncoder):
    """The encoder over all tiles of each image, which attend to each other."""

    @labelled("masks of tiles")
    def run_tiles(self, tape: Tape) -> Tensor:
        """The last hidden states beside those of some layers in between, for every patch of every tile."""
        seen, outside = self.vision.images, self.outside
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
        between = stack([local[min(number, len(local) - 1)] for number in self.vision.between])
        between = window(between, between.n // self.rows * (real // width)) if real < self.rows * width else between
        return cat((h, between))

    @labelled("pixels")
    def _placed(self, x: Tensor, name: str) -> Tensor:
        """Each tile's embedding, by the image's aspect ratio, times a gate's tanh, added to all its patches."""
        tape, images = tape_of(x), self.vision.images.images
        table = self.outside.require(f"{name}.embedding")
        found = embedding(tape, images, table.weight, table.weight.n // table.out, tape.new(images, 8))
        return add(x, tanh_gated(found, self.outside.require(f"{name}.gate")))

    def _positions(self, x: Tensor) -> Tensor:
        """Positions in a tile, less what the gate lets through of those of each tile."""
        tape, images, outside = tape_of(x), self.vision.images.images, self.outside
        table, tiles = (
            outside.require(f"gated_positional_embedding.{name}") for name in ("embedding", "tile_embedding")
        )
        gate = outside.require("gated_positional_embedding.gate")
        x = add(x, mul(scale(_tanh(tape, gate)), leaf(tape, table.weight)))
        found = embedding(tape, images, tiles.weight, tiles.weight.n // tiles.out, tape.new(images, 8))
        return add(x, tanh_gated(found, gate))

    def _mask(self, tape: Tape, e: int) -> Tensor:
        """Every patch of an image beside every other: a product of vectors in autocast's width, times a number."""
        n, e = self.vision.images.images * self.vision.images.patches**2, tape.autocast or e
        product = tape.new(n, e)
        y = tape.new(n, e)
        del product
        return y

    def _through(self, h: Tensor, last: bool, mask: Tensor) -> list[Tensor]:
        """The outputs of one stack's layers; a pipeline's stage may lack it, so that its input is handed on."""
        found = ((name, n) for name, n in self.vision.stacks if (GLOBAL in name) == last)
        self.prefix, count = next(found, ("", 0))
        states: list[Tensor] = []
        for number in range(count):
            layer = VisionLayer(self, number, None, mask)
            h = self.checkpointed(layer, h) if self.vision.checkpointed else layer(h)
            states.append(h)
        return states or [h]


def _tanh(tape: Tape, gate: Linear) -> Tensor:
    return unary(leaf(tape, gate.weight), save_input=False, save_output=True)
