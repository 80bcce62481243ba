"""From a vision encoder's hidden states to rows of the text decoder's input.

Source: transformers 5.23 models/*/modeling_*.py of llava, gemma3, paligemma, internvl, mistral3, llama4, glm4v,
qwen2_5_vl and qwen3_vl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..adapters.linear import project
from ..layers.activation import activation
from ..layers.norms import NORMS
from ..tape.backward import fresh, made
from ..tape.indexing import cat, expand, gather, resized, split, window
from ..tape.labels import labelled
from ..tape.matmuls import linear
from ..tape.ops import contiguous, copied, leaf, mul, relayout, to
from ..tape.tape import tape_of
from ..tape.tensor import Tensor
from .image_tokens import ImageTokens, Naflex, image_token_projector, unshuffled
from .vision_encoder import VisionEncoder

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..inputs.anyres import Cut
    from ..layers.dims import LayerDims
    from ..layers.state import ReplayState
    from ..layers.weights import ModelWeights
    from ..tape.tape import Tape
    from .vision_dims import VisionDims
    from .vision_encoder import Features

PART = "image projector"


class Embedded(NamedTuple):
    """The text's embeddings with images among them, what the forward function holds of these, and deepstack's."""

    embeds: Tensor
    held: tuple[Tensor, ...]
    deepstack: tuple[Tensor, ...]


@labelled("places of images", part="before the layers")
def with_images(
    tape: Tape, dims: LayerDims, weights: ModelWeights, state: ReplayState, vision: VisionDims, embeds: Tensor
) -> Embedded:
    """The embeddings with the images' features in the places of their tokens."""
    layers = ENCODERS.get(vision.model.projector, VisionEncoder)(dims, weights, state, vision)
    found = layers.run(tape)
    pooled = PROJECTORS[vision.model.projector](layers, found)
    layers.joined = ()
    parts = pooled if isinstance(pooled, tuple) else (pooled,)
    features = to(cat(parts) if vision.model.listed else parts[0], embeds.e)
    mask = tape.new(dims.rows, 1)
    if vision.model.returned:
        state.held_by_forward.append(features.storage)
        state.module_outputs.append(features)
    deepstack = tuple(cat((x,)) for x in found.deepstack)
    return Embedded(scattered_into(embeds, features, mask), (*found.held, *parts, features, mask), deepstack)


@labelled("words and images together", part="before the layers")
def scattered_into(x: Tensor, part: Tensor, mask: Tensor) -> Tensor:
    """masked_scatter: saves the mask; backward fills a copy of the gradient and takes the part's out of it."""
    tape, n, e, size = tape_of(x), x.n, x.e, part.n
    y = tape.new(n, e)
    for_x, for_part = x.node is not None, part.node is not None

    def back(_: Tensor, _kept: object = mask) -> tuple[Tensor | None, Tensor | None]:
        return tape.new(n, e) if for_x else None, tape.new(size, e) if for_part else None

    return made(y, tape.node((x, part), back))


@labelled("deepened")
def deepstack_added(h: Tensor, features: Tensor, dims: LayerDims) -> Tensor:
    """Qwen3-VL: features of a further layer are added to the images' rows of a copy of the hidden states."""
    tape = tape_of(h)
    h = contiguous(h)
    where = tape.new(features.n // dims.hidden, 8)
    part = gather(h, features.n, where)
    total, n, e = part.n, h.n, h.e
    y = tape.new(total, e)
    summed = made(y, tape.node((part, features), lambda g: (g, g), saves=0))

    def back(_: Tensor, _kept: object = where) -> tuple[Tensor, Tensor]:
        return tape.new(n, e), tape.new(total, e)

    return made(Tensor(h.storage, n, e), tape.node((h, summed), back))


def merger(layers: VisionEncoder, found: Features) -> Tensor:
    """Qwen: the tower's own merger; windows are put back in order."""
    y = layers.merged(found.read, layers.outside)
    return y if layers.vision.window is None else gather(y, y.n, tape_of(y).new(y.n // layers.dims.hidden, 8))


def llava(layers: VisionEncoder, found: Features) -> Tensor:
    """LLaVA: the patches without the class token through two projections."""
    rows = layers.vision.token_rows
    h = found.read if rows == layers.rows else window(found.read, found.read.n // layers.rows * rows)
    return _two(layers, h, rows)


def any_resolution(layers: VisionEncoder, found: Features) -> tuple[Tensor, ...]:
    """LLaVA-NeXT: each image's tiles laid out as one picture, without padding, its rows ended, behind the whole."""
    seen = layers.vision.images
    assert seen.cut is not None
    projected = llava(layers, found)
    each = projected.n // seen.given
    return tuple(_packed(image, layers, seen.cut) for image in split(projected, (each,) * seen.given))


def _packed(image: Tensor, layers: VisionEncoder, cut: Cut) -> Tensor:
    hidden, tape = layers.dims.hidden, tape_of(image)
    end = leaf(tape, layers.outside.require("image_newline").weight)
    if cut.tiles == 1:
        return cat((window(image, image.n), end))
    base = window(image, cut.base * hidden)
    image = copied(window(image, image.n - base.n))
    image = window(image, cut.shown * hidden) if cut.shown < cut.grid else image
    height, width = cut.scaled
    if height * width < cut.shown:
        image = resized(image, height * width * hidden)
    image = cat((image, expand(end, height * hidden)))
    return cat((base, relayout(image)))


def _two(layers: VisionEncoder, h: Tensor, rows: int) -> Tensor:
    h = project(h, layers.outside.require("linear_1"), rows)
    h = activation(layers.vision.projector_activation)(h)
    return project(h, layers.outside.require("linear_2"), rows)


def gemma3(layers: VisionEncoder, found: Features) -> Tensor:
    """Gemma 3: patches laid out as pictures, averaged, normed and multiplied with a matrix."""
    tape, rows = tape_of(found.read), layers.vision.token_rows
    laid = contiguous(found.read)
    pooled = fresh(tape.new(laid.n // layers.rows * rows, laid.e), laid, laid.storage)
    h = NORMS["gemma"](pooled, layers.outside.require("mm_soft_emb_norm"), rows)
    return linear(h, layers.outside.require("mm_input_projection_weight").weight, rows)


def linear_alone(layers: VisionEncoder, found: Features) -> Tensor:
    """PaliGemma: one projection of each patch."""
    return project(found.read, layers.outside.require("linear"), layers.rows)


def shuffled(layers: VisionEncoder, found: Features) -> Tensor:
    """InternVL: the patches of each token side by side, by two copies; a norm and two projections."""
    rows = layers.vision.token_rows
    h = window(found.read, found.read.n // layers.rows * (layers.rows - layers.vision.images.images))
    h = copied(copied(h))
    return _two(layers, NORMS["layer"](h, layers.outside.require("layer_norm"), rows), rows)


def connector(layers: VisionEncoder, found: Features) -> Tensor:
    """Idefics 3: the patches of each token side by side by two copies, and one projection."""
    h = copied(copied(found.read))
    return project(h, layers.outside.require("modality_projection.proj"), layers.vision.token_rows)


def mistral3(layers: VisionEncoder, found: Features) -> Tensor:
    """Mistral 3: a norm, the patches of each token side by side by two copies, and three projections."""
    rows = layers.vision.token_rows
    h = NORMS["rms"](found.read, layers.outside.require("multi_modal_projector.norm"), layers.rows)
    parts = copied(h)
    h = cat((parts,))
    h = project(h, layers.outside.require("merging_layer"), rows)
    del parts
    return _two(layers, h, rows)


def halved(layers: VisionEncoder, found: Features) -> Tensor:
    """Aya Vision, Command A Vision: the patches of each token side by side, then a projection that gates itself."""
    rows, outside = layers.vision.token_rows, layers.outside
    h = copied(found.read)
    norm = outside.leaf("multi_modal_projector.layernorm")
    h = NORMS["layer"](h, norm, rows) if norm is not None else contiguous(h)
    h = project(h, outside.require("linear_1"), rows)
    x, gate = split(h, (h.n // 2, h.n // 2))
    h = mul(activation("silu")(gate), x)
    del x, gate
    return project(h, outside.require("linear_2"), rows)


def llama4(layers: VisionEncoder, found: Features) -> Tensor:
    """Llama 4: the patches of each token side by side by two copies, two projections with GELU and the projector's."""
    rows = layers.vision.token_rows
    h = window(found.read, found.read.n // layers.rows * (layers.rows - layers.vision.images.images))
    h = copied(copied(h))
    act = activation("gelu")
    h = act(project(h, layers.outside.require("mlp.fc1"), rows))
    h = act(project(h, layers.outside.require("mlp.fc2"), rows))
    return project(h, layers.outside.require("linear_1"), rows)


def glm4v(layers: VisionEncoder, found: Features) -> Tensor:
    """GLM-4V: a projection, a norm and GELU, then an MLP with a gate."""
    rows, outside = layers.vision.token_rows, layers.outside
    h = project(found.read, outside.require("merger.proj"), rows)
    h = activation("gelu")(NORMS["layer"](h, outside.require("post_projection_norm"), rows))
    first = activation(layers.vision.activation)(project(h, outside.require("merger.gate_proj"), rows))
    inner = mul(first, project(h, outside.require("merger.up_proj"), rows))
    del first
    return project(inner, outside.require("merger.down_proj"), rows)


PROJECTORS: dict[str, Callable[[VisionEncoder, Features], Tensor | tuple[Tensor, ...]]] = {
    "soft": image_token_projector, "linear": linear_alone,
} | {
    projector.__name__: projector
    for projector in (
        merger, llava, any_resolution, connector, halved, unshuffled, gemma3, shuffled, mistral3, llama4, glm4v,
    )
}  # fmt: skip

ENCODERS: dict[str, type[VisionEncoder]] = {"soft": ImageTokens, "unshuffled": Naflex}
"""Encoders that are written otherwise than `VisionEncoder`, by the projector that reads them."""
