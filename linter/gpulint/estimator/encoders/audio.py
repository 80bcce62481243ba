"""What turns sound into hidden states before an encoder's layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..layers.activation import activation
from ..layers.mixers.convolution import convolve
from ..tape.ops import add, dropout
from ..tape.tensor import Tensor

if TYPE_CHECKING:
    from ..adapters.modules import Modules
    from ..layers.setting import Setting
    from ..tape.tape import Tape


def heard(tape: Tape, s: Setting, outside: Modules) -> tuple[Tensor, Tensor]:
    """Whisper: two convolutions over mel frames, the second of stride 2, then a fixed table of positions.

    The features have the width of the weights; the caller holds them until the loss is there.
    """
    first, second = outside.require("encoder.conv1"), outside.require("encoder.conv2")
    bins = first.weight.n // (s.hidden * KERNEL)
    features = tape.new(2 * s.rows * bins, first.weight.e)
    h = convolve(features, first, 2 * s.rows * s.hidden)
    if s.leaf_inputs and h.node is None:
        tape.source(h)
    h = activation("gelu")(h)
    words = activation("gelu")(convolve(h, second, s.rows * s.hidden))
    s.cache.append(features.storage)
    del h, features
    where = outside.require("encoder.embed_positions")
    h = add(words, tape.new(s.length * s.hidden, where.weight.e))
    return dropout(h, s.embedding_dropout), words


KERNEL = 3
"""Taps of both convolutions (transformers 5.23 modeling_whisper.py WhisperEncoder)."""
