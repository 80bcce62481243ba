"""Wav2Vec2 and HuBERT: from samples of sound to hidden states.

b sequences of samples; C channels and l frames behind each convolution; T frames behind the last one, h hidden size.
Source: transformers 5.23 models/wav2vec2/modeling_wav2vec2.py, models/hubert/modeling_hubert.py.
SpecAugment writes over some frames in place; it and layerdrop, which skips layers, are left out.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ..adapters.linear import project
from ..layers.activation import activation
from ..layers.mixers.convolution import convolve, convolved
from ..layers.norms import NORMS
from ..tape.backward import made
from ..tape.indexing import window
from ..tape.labels import labelled
from ..tape.ops import add, dropout, leaf, needs_gradient
from ..tape.tape import tape_of
from ..tape.tensor import Tensor

if TYPE_CHECKING:
    from ..adapters.modules import Linear, Modules
    from ..layers.dims import LayerDims
    from ..layers.state import ReplayState
    from ..tape.tape import Tape


class SpeechFrames(NamedTuple):
    """The layers' input, and what the model's forward function holds beside it."""

    hidden: Tensor
    held: tuple[Tensor, ...]


@labelled("listened")
def speech_frames(tape: Tape, dims: LayerDims, state: ReplayState, outside: Modules) -> SpeechFrames:
    """The convolutions, their projection to the hidden size, and positions from a convolution over all of it.

    Samples have the width of the weights; the caller holds them until the loss is there.
    """
    named = dict(outside.named)
    first = next(module for name, module in named.items() if name.endswith("conv_layers.0.conv"))
    sound = tape.new(dims.batch * dims.sound.samples, first.weight.e)
    state.held_by_forward.append(sound.storage)
    features = _features(sound, dims, named)
    norm = outside.leaf("feature_projection.layer_norm")
    normed = features if norm is None else NORMS["layer"](features, norm, dims.rows)
    projected = project(normed, outside.require("feature_projection.projection"), dims.rows)
    projected = dropout(projected, dims.dropout.features)
    returned = normed if dims.arch.returns_features else features
    if dims.arch.returns_features:
        state.held_by_forward.append(normed.storage)
    del features, normed
    placed = _positions(projected, dims, outside)
    h = add(projected, placed)
    if not dims.arch.final:
        h = NORMS["layer"](h, outside.leaf("encoder.layer_norm"), dims.rows)
    return SpeechFrames(dropout(h, dims.dropout.residual), (returned, projected, placed))


def _features(sound: Tensor, dims: LayerDims, named: dict[str, Linear]) -> Tensor:
    """The convolutions; where they are trained the samples want a gradient, so that checkpoints have one."""
    tape, h = tape_of(sound), sound
    trained = any(module.weight.trainable for name, module in named.items() if "conv_layers." in name)
    if trained and tape.recording:
        tape.source(h)
    for i, length in enumerate(dims.sound.frames):
        conv = next(module for name, module in named.items() if name.endswith(f"conv_layers.{i}.conv"))
        norm = next((module for name, module in named.items() if name.endswith(f"conv_layers.{i}.layer_norm")), None)
        block = partial(_convolved, conv=conv, norm=norm, rows=dims.batch * length, dims=dims)
        if trained and tape.recording and dims.checkpoint.mode == "full":
            h = tape.checkpoint(block, h, "full", dims.checkpoint.reentrant)
        else:
            h = block(h)
    return h


def _convolved(x: Tensor, conv: Linear, norm: Linear | None, rows: int, dims: LayerDims) -> Tensor:
    """A convolution, a norm over channels, or over time in groups of one channel, and GELU."""
    y = convolve(x, conv, rows * conv.out)
    if norm is not None:
        y = NORMS["layer"](y, norm, dims.batch * conv.out if dims.sound.grouped else rows)
    return activation("gelu")(y)


def _positions(x: Tensor, dims: LayerDims, outside: Modules) -> Tensor:
    """A grouped convolution whose filter is v g / |v|, a norm for each tap; an even one makes a position too many."""
    parts = [outside.require(f"conv.parametrizations.weight.original{i}") for i in (0, 1)]
    tape = tape_of(x)
    size, direction = parts
    taps = size.weight.n
    g, v = leaf(tape, size.weight), leaf(tape, direction.weight)
    norms = tape.new(taps, 4)
    weight = tape.new(v.n, v.e)
    wanted = [p.weight.n if needs_gradient(p.weight) else 0 for p in parts]

    def back(_: Tensor, _kept: object = norms) -> tuple[Tensor | None, ...]:
        return tuple(tape.new(n, v.e) if n else None for n in wanted)

    made(weight, tape.node((g, v), back))
    longer = dims.batch * dims.hidden * (dims.length + (taps % 2 == 0))
    y = convolved(x, weight, outside.require("pos_conv_embed.conv.bias").weight, longer)
    return activation("gelu")(window(y, x.n) if taps % 2 == 0 else y)


@labelled("heard")
def audio_features(tape: Tape, dims: LayerDims, state: ReplayState, outside: Modules) -> tuple[Tensor, Tensor]:
    """Whisper: two convolutions over mel frames, the second of stride 2, then a fixed table of positions.

    The features have the width of the weights; the caller holds them until the loss is there.
    """
    first, second = outside.require("encoder.conv1"), outside.require("encoder.conv2")
    bins = first.weight.n // (dims.hidden * KERNEL)
    features = tape.new(2 * dims.rows * bins, first.weight.e)
    h = convolve(features, first, 2 * dims.rows * dims.hidden)
    if dims.inputs_require_grad and h.node is None:
        tape.source(h)
    h = activation("gelu")(h)
    words = activation("gelu")(convolve(h, second, dims.rows * dims.hidden))
    state.held_by_forward.append(features.storage)
    del h, features
    where = outside.require("encoder.embed_positions")
    h = add(words, tape.new(dims.length * dims.hidden, where.weight.e))
    return dropout(h, dims.dropout.embedding), words


KERNEL = 3
"""Taps of both convolutions (transformers 5.23 modeling_whisper.py WhisperEncoder)."""
