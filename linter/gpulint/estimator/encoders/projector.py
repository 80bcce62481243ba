"""From a vision tower's hidden states to rows of the text decoder's input.

Source: transformers 5.23 models/*/modeling_*.py of llava, gemma3, paligemma, internvl, mistral3, llama4, glm4v,
qwen2_5_vl and qwen3_vl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..adapters.linear import project
from ..layers.activation import activation
from ..layers.norms import NORMS
from ..tape.indexing import cat, expand, gather, resized, split, window
from ..tape.labels import labelled
from ..tape.matmuls import linear
from ..tape.ops import contiguous, copied, leaf, made, mul, relayout, to
from ..tape.tensor import Tensor
from .image_tokens import SoftTokens, soft
from .naflex import Naflex, unshuffled
from .vision_encoder import Layers

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..inputs.anyres import Cut
    from ..layers.setting import Setting
    from ..tape.tape import Tape
    from .vision_encoder import Features

PART = "image projector"


class Seen:
    """What the model's forward function holds of its images while the decoder runs, and what layers are handed."""

    def __init__(self, merged: Tensor, held: tuple[Tensor, ...], deep: tuple[Tensor, ...]) -> None:
        self.merged = merged
        self.held = held
        self.deep = deep


@labelled("places of images", part="before the layers")
def see(tape: Tape, s: Setting, embeds: Tensor) -> Seen:
    """The embeddings with the images' features in the places of their tokens."""
    assert s.reader is not None
    assert s.pictures is not None
    layers = TOWERS.get(s.reader.projector, Layers)(s, s.model, s.reader, s.pictures)
    found = layers.run(tape)
    pooled = PROJECTORS[s.reader.projector](layers, found)
    layers.joined = ()
    parts = pooled if isinstance(pooled, tuple) else (pooled,)
    features = to(cat(parts) if s.reader.listed else parts[0], embeds.e)
    mask = tape.new(s.rows, 1)
    if s.reader.returned:
        s.cache.append(features.storage)
        s.returned.append(features)
    deep = tuple(cat((x,)) for x in found.deep)
    return Seen(scattered_into(embeds, features, mask), (*found.held, *parts, features, mask), deep)


@labelled("words and images together", part="before the layers")
def scattered_into(x: Tensor, part: Tensor, mask: Tensor) -> Tensor:
    """masked_scatter: saves the mask; backward fills a copy of the gradient and takes the part's out of it."""
    tape, n, e, size = x.storage.tape, x.n, x.e, part.n
    y = tape.new(n, e)
    for_x, for_part = x.node is not None, part.node is not None

    def back(_: Tensor, _kept: object = mask) -> tuple[Tensor | None, Tensor | None]:
        return tape.new(n, e) if for_x else None, tape.new(size, e) if for_part else None

    return made(y, tape.node((x, part), back))


def deepened(h: Tensor, features: Tensor, s: Setting) -> Tensor:
    """Qwen3-VL: features of a further layer are added to the images' rows of a copy of the hidden states."""
    tape = h.storage.tape
    h = contiguous(h)
    where = tape.new(features.n // s.hidden, 8)
    part = gather(h, features.n, where)
    total, n, e = part.n, h.n, h.e
    y = tape.new(total, e)
    summed = made(y, tape.node((part, features), lambda g: (g, g), saves=0))

    def back(_: Tensor, _kept: object = where) -> tuple[Tensor, Tensor]:
        return tape.new(n, e), tape.new(total, e)

    return made(Tensor(h.storage, n, e), tape.node((h, summed), back))


def merger(layers: Layers, found: Features) -> Tensor:
    """Qwen: the tower's own merger; windows are put back in order."""
    y = layers.merged(found.read, layers.outside)
    return y if layers.window is None else gather(y, y.n, y.storage.tape.new(y.n // layers.s.hidden, 8))


def llava(layers: Layers, found: Features) -> Tensor:
    """LLaVA: the patches without the class token through two projections."""
    rows = layers.seen.images * layers.seen.tokens
    h = found.read if rows == layers.rows else window(found.read, found.read.n // layers.rows * rows)
    return _two(layers, h, rows)


def any_resolution(layers: Layers, found: Features) -> tuple[Tensor, ...]:
    """LLaVA-NeXT: each image's tiles laid out as one picture, without padding, its rows ended, behind the whole."""
    seen = layers.seen
    assert seen.cut is not None
    projected = llava(layers, found)
    each = projected.n // seen.given
    return tuple(_packed(image, layers, seen.cut) for image in split(projected, (each,) * seen.given))


def _packed(image: Tensor, layers: Layers, cut: Cut) -> Tensor:
    hidden, tape = layers.s.hidden, image.storage.tape
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


def _two(layers: Layers, h: Tensor, rows: int) -> Tensor:
    h = project(h, layers.outside.require("linear_1"), rows)
    h = activation(str(layers.s.model.config.get("projector_hidden_act") or "gelu"))(h)
    return project(h, layers.outside.require("linear_2"), rows)


def gemma3(layers: Layers, found: Features) -> Tensor:
    """Gemma 3: patches laid out as pictures, averaged, normed and multiplied with a matrix."""
    tape, rows = found.read.storage.tape, layers.seen.images * layers.seen.tokens
    laid = contiguous(found.read)
    n, was, e = laid.n // layers.rows * rows, laid.n, laid.e
    kept = laid.storage
    pooled = made(tape.new(n, e), tape.node((laid,), lambda _, _kept=kept: (tape.new(was, e),)))
    h = NORMS["gemma"](pooled, layers.outside.require("mm_soft_emb_norm"), rows)
    return linear(h, layers.outside.require("mm_input_projection_weight").weight, rows)


def linear_alone(layers: Layers, found: Features) -> Tensor:
    """PaliGemma: one projection of each patch."""
    return project(found.read, layers.outside.require("linear"), layers.rows)


def shuffled(layers: Layers, found: Features) -> Tensor:
    """InternVL: the patches of each token side by side, by two copies; a norm and two projections."""
    rows = layers.seen.images * layers.seen.tokens
    h = window(found.read, found.read.n // layers.rows * (layers.rows - layers.seen.images))
    h = copied(copied(h))
    return _two(layers, NORMS["layer"](h, layers.outside.require("layer_norm"), rows), rows)


def connector(layers: Layers, found: Features) -> Tensor:
    """Idefics 3: the patches of each token side by side by two copies, and one projection."""
    h = copied(copied(found.read))
    return project(h, layers.outside.require("modality_projection.proj"), layers.seen.images * layers.seen.tokens)


def mistral3(layers: Layers, found: Features) -> Tensor:
    """Mistral 3: a norm, the patches of each token side by side by two copies, and three projections."""
    rows = layers.seen.images * layers.seen.tokens
    h = NORMS["rms"](found.read, layers.outside.require("multi_modal_projector.norm"), layers.rows)
    parts = copied(h)
    h = cat((parts,))
    h = project(h, layers.outside.require("merging_layer"), rows)
    del parts
    return _two(layers, h, rows)


def halved(layers: Layers, found: Features) -> Tensor:
    """Aya Vision, Command A Vision: the patches of each token side by side, then a projection that gates itself."""
    rows, outside = layers.seen.images * layers.seen.tokens, layers.outside
    h = copied(found.read)
    norm = outside.leaf("multi_modal_projector.layernorm")
    h = NORMS["layer"](h, norm, rows) if norm is not None else contiguous(h)
    h = project(h, outside.require("linear_1"), rows)
    x, gate = split(h, (h.n // 2, h.n // 2))
    h = mul(activation("silu")(gate), x)
    del x, gate
    return project(h, outside.require("linear_2"), rows)


def llama4(layers: Layers, found: Features) -> Tensor:
    """Llama 4: the patches of each token side by side by two copies, two projections with GELU and the projector's."""
    rows = layers.seen.images * layers.seen.tokens
    h = window(found.read, found.read.n // layers.rows * (layers.rows - layers.seen.images))
    h = copied(copied(h))
    act = activation("gelu")
    h = act(project(h, layers.outside.require("mlp.fc1"), rows))
    h = act(project(h, layers.outside.require("mlp.fc2"), rows))
    return project(h, layers.outside.require("linear_1"), rows)


def glm4v(layers: Layers, found: Features) -> Tensor:
    """GLM-4V: a projection, a norm and GELU, then an MLP with a gate."""
    rows, outside = layers.seen.images * layers.seen.tokens, layers.outside
    h = project(found.read, outside.require("merger.proj"), rows)
    h = activation("gelu")(NORMS["layer"](h, outside.require("post_projection_norm"), rows))
    first = activation(layers.activation)(project(h, outside.require("merger.gate_proj"), rows))
    inner = mul(first, project(h, outside.require("merger.up_proj"), rows))
    del first
    return project(inner, outside.require("merger.down_proj"), rows)


PROJECTORS: dict[str, Callable[[Layers, Features], Tensor | tuple[Tensor, ...]]] = {
    "merger": merger,
    "llava": llava,
    "any_resolution": any_resolution,
    "connector": connector,
    "soft": soft,
    "halved": halved,
    "unshuffled": unshuffled,
    "gemma3": gemma3,
    "linear": linear_alone,
    "shuffled": shuffled,
    "mistral3": mistral3,
    "llama4": llama4,
    "glm4v": glm4v,
}

TOWERS: dict[str, type[Layers]] = {"soft": SoftTokens, "unshuffled": Naflex}
"""Towers that are written otherwise than `Layers`, by the projector that reads them."""
