"""SigLIP 2 over patches that are padded to one number, as LFM2-VL hands them on: tiles of an image and the whole.

Source: transformers 5.23 models/siglip2/modeling_siglip2.py, lfm2_vl/modeling_lfm2_vl.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..adapters.linear import project
from ..layers.activation import activation
from ..layers.norms import NORMS
from ..tape.indexing import assigned, resized, split, window
from ..tape.labels import labelled
from ..tape.ops import add, copied, leaf, to
from .vision_encoder import PATCHES, Features, VisionEncoder, one_of, wanted

if TYPE_CHECKING:
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor

PART = "vision tower"


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
