"""What turns sound into hidden states before an encoder's layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..layers.activation import activation
from ..layers.mixers.convolution import convolve
from ..tape.labels import labelled
from ..tape.ops import add, dropout
from ..tape.tensor import Tensor

if TYPE_CHECKING:
    from ..adapters.modules import Modules
    from ..layers.dims import LayerDims
    from ..layers.state import ReplayState
    from ..tape.tape import Tape


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
