"""From a vision tower's hidden states to rows of the text decoder's input.

Source: transformers 5.23 models/{llava,gemma3,qwen2_5_vl,qwen3_vl}/modeling_*.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .activation import activation
from .adapters import project
from .indexing import cat, gather, window
from .matmuls import linear
from .norms import NORMS
from .ops import contiguous, copied, made, to
from .tensor import Tensor
from .tower import Layers

if TYPE_CHECKING:
    from collections.abc import Callable

    from .setting import Setting
    from .tape import Tape
    from .tower import Features


class Seen:
    """What the model's forward function holds of its images while the decoder runs, and what layers are handed."""

    def __init__(self, merged: Tensor, held: tuple[Tensor, ...], deep: tuple[Tensor, ...]) -> None:
        self.merged = merged
        self.held = held
        self.deep = deep


def see(tape: Tape, s: Setting, embeds: Tensor) -> Seen:
    """The embeddings with the images' features in the places of their tokens."""
    assert s.reader is not None
    assert s.pictures is not None
    layers = Layers(s, s.model, s.reader, s.pictures)
    found = layers.run(tape)
    pooled = PROJECTORS[s.reader.projector](layers, found)
    features = to(cat((pooled,)) if s.reader.listed else pooled, embeds.e)
    mask = tape.new(s.rows, 1)
    if s.reader.returned:
        s.cache.append(features.storage)
        s.returned.append(features)
    deep = tuple(cat((x,)) for x in found.deep)
    return Seen(scattered_into(embeds, features, mask), (*found.held, pooled, features, mask), deep)


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
    h = window(found.read, found.read.n // layers.rows * rows)
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
    h = NORMS["layer"](h, layers.outside.require("layer_norm"), rows)
    h = project(h, layers.outside.require("linear_1"), rows)
    h = activation(str(layers.s.model.config.get("projector_hidden_act") or "gelu"))(h)
    return project(h, layers.outside.require("linear_2"), rows)


PROJECTORS: dict[str, Callable[[Layers, Features], Tensor]] = {"merger": merger, "llava": llava, "gemma3": gemma3,
    "linear": linear_alone, "shuffled": shuffled}  # fmt: skip
