"""Instant: one candidate peak of a training step."""

from __future__ import annotations

from typing import NamedTuple


class Instant(NamedTuple):
    """Bytes alive on one rank that are neither weights, gradients, optimizer states nor sharding buffers.

    phase               `forward`, `loss` or `backward`
    activations         bytes, kernel workspaces included;  logits  bytes of vocabulary-wide tensors, apart from them
    gradient_elements   trainable elements whose gradient exists by then
    layer               the decoder layer in flight, None outside the stack
    fresh               those of `gradient_elements` made by the segment in flight (a layer, or one side of them)
    """

    phase: str
    activations: int
    logits: int
    gradient_elements: int
    layer: int | None
    fresh: int = 0
