"""Wav2Vec2 and HuBERT: from samples of sound to hidden states, and the loss that aligns them with a text.

b sequences of samples; C channels and l frames behind each convolution; T frames behind the last one, h hidden size.
Source: transformers 5.23 models/wav2vec2/modeling_wav2vec2.py, models/hubert/modeling_hubert.py, loss/loss_ctc.py.
SpecAugment writes over some frames in place; it and layerdrop, which skips layers, are left out.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ..adapters.linear import project
from ..frameworks.release import reentrant
from ..inputs.speech import frames
from ..layers.activation import activation
from ..layers.mixers.convolution import convolve, convolved
from ..layers.norms import NORMS
from ..tape.indexing import window
from ..tape.ops import add, dropout, leaf, made, needs_gradient, softmax
from ..tape.tensor import mark

if TYPE_CHECKING:
    from ..adapters.modules import Linear, Modules
    from ..layers.decoder import Layer
    from ..layers.setting import Setting
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor


class Begun(NamedTuple):
    """The layers' input, and what the model's forward function holds beside it."""

    hidden: Tensor
    held: tuple[Tensor, ...]


def listened(tape: Tape, s: Setting, outside: Modules) -> Begun:
    """The convolutions, their projection to the hidden size, and positions from a convolution over all of it.

    Samples have the width of the weights; the caller holds them until the loss is there.
    """
    named = dict(outside.named)
    first = next(module for name, module in named.items() if name.endswith("conv_layers.0.conv"))
    sound = tape.new(s.batch * s.samples, first.weight.e)
    s.cache.append(sound.storage)
    features = _features(sound, s, named)
    norm = outside.leaf("feature_projection.layer_norm")
    normed = features if norm is None else NORMS["layer"](features, norm, s.rows)
    projected = project(normed, outside.require("feature_projection.projection"), s.rows)
    projected = dropout(projected, s.dropout(("feat_proj_dropout", 0.0)))
    returned = normed if s.traits.returns_features else features
    if s.traits.returns_features:
        s.cache.append(normed.storage)
    del features, normed
    placed = _positions(projected, s, outside)
    h = add(projected, placed)
    if not s.traits.final:
        h = NORMS["layer"](h, outside.leaf("encoder.layer_norm"), s.rows)
    return Begun(dropout(h, s.residual_dropout), (returned, projected, placed))


def _features(sound: Tensor, s: Setting, named: dict[str, Linear]) -> Tensor:
    """The convolutions; where they are trained the samples want a gradient, so that checkpoints have one."""
    tape, h = sound.storage.tape, sound
    trained = any(module.weight.trainable for name, module in named.items() if "conv_layers." in name)
    if trained and tape.recording:
        tape.source(h)
    for i, length in enumerate(frames(s.config, s.samples)):
        conv = next(module for name, module in named.items() if name.endswith(f"conv_layers.{i}.conv"))
        norm = next((module for name, module in named.items() if name.endswith(f"conv_layers.{i}.layer_norm")), None)
        block = partial(_convolved, conv=conv, norm=norm, rows=s.batch * length, s=s)
        if trained and tape.recording and s.job.activation_checkpointing == "full":
            h = tape.checkpoint(block, h, "full", reentrant(s.job))
        else:
            h = block(h)
    return h


def _convolved(x: Tensor, conv: Linear, norm: Linear | None, rows: int, s: Setting) -> Tensor:
    """A convolution, a norm over channels, or over time in groups of one channel, and GELU."""
    grouped = s.config.get("feat_extract_norm", "group") == "group"
    y = convolve(x, conv, rows * conv.out)
    if norm is not None:
        y = NORMS["layer"](y, norm, s.batch * conv.out if grouped else rows)
    return activation("gelu")(y)


def _positions(x: Tensor, s: Setting, outside: Modules) -> Tensor:
    """A grouped convolution whose filter is v g / |v|, a norm for each tap; an even one makes a position too many."""
    parts = [outside.require(f"conv.parametrizations.weight.original{i}") for i in (0, 1)]
    tape = x.storage.tape
    size, direction = parts
    taps = size.weight.n
    g, v = leaf(tape, size.weight), leaf(tape, direction.weight)
    norms = tape.new(taps, 4)
    weight = tape.new(v.n, v.e)
    wanted = [p.weight.n if needs_gradient(p.weight) else 0 for p in parts]

    def back(_: Tensor, _kept: object = norms) -> tuple[Tensor | None, ...]:
        return tuple(tape.new(n, v.e) if n else None for n in wanted)

    made(weight, tape.node((g, v), back))
    longer = s.batch * s.hidden * (s.length + (taps % 2 == 0))
    y = convolved(x, weight, outside.require("pos_conv_embed.conv.bias").weight, longer)
    return activation("gelu")(window(y, x.n) if taps % 2 == 0 else y)


def after(layer: Layer, x: Tensor) -> Tensor:
    """A layer with norms behind its sums."""
    residual = x
    h = add(residual, layer.attention(x))
    h = layer.norm(h, 0)
    h = add(h, _fed(layer, h))
    return layer.norm(h, 2)


def before(layer: Layer, x: Tensor) -> Tensor:
    """A layer with norms before its branches (`do_stable_layer_norm`)."""
    residual = x
    h = layer.norm(x, 0)
    h = layer.attention(h)
    h = add(residual, h)
    return add(h, _fed(layer, layer.norm(h, 2)))


def _fed(layer: Layer, x: Tensor) -> Tensor:
    s, modules = layer.s, layer.modules
    h = project(x, modules.need("up"), s.rows)
    h = activation(s.activation)(h)
    h = dropout(h, s.activation_dropout)
    h = project(h, modules.need("down"), s.rows)
    return dropout(h, s.residual_dropout)


def ctc(h: Tensor, head: Linear, s: Setting, tape: Tape, segment: int) -> Tensor:
    """Dropout, the head, float32 log-probabilities; the loss keeps log alpha, b T (2 U + 1) float32 for U labels.

    A mask of ones, 8 bytes a sample, stands in where the processor makes none, and lives until the loss is there.
    Backward makes log beta of the same size for a moment (aten native/cuda/LossCTC.cu).
    """
    dropped = dropout(h, s.head_dropout)
    logits = project(dropped, head, s.rows)
    mark(logits)
    s.remember([logits])
    s.returned.append(logits)
    tape.enter(segment)
    mask = tape.new(s.batch * s.samples, 8)
    probabilities = softmax(logits, 4)
    states = s.batch * s.length * (2 * (s.job.target_length or 0) + 1)
    alpha = tape.new(states, 4)
    n = probabilities.n

    def back(_: Tensor, _kept: object = (alpha, probabilities.storage)) -> tuple[Tensor]:
        tape.scratch(4 * states)
        return (tape.new(n, 4),)

    del mask, dropped, h
    return made(tape.new(1, 4), tape.node((probabilities,), back))
