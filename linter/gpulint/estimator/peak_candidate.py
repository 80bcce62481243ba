"""PeakCandidate: one instant of a replay that may be the peak."""

from __future__ import annotations

from typing import NamedTuple

from .terms import Term, line

SOURCE = "estimator/activations.py: torch autograd replayed over the modelling code"


class PeakCandidate(NamedTuple):
    """Bytes alive on one rank that are neither weights, gradients, optimizer states nor sharding buffers.

    phase               `forward`, `loss` or `backward`
    activations         bytes, kernel workspaces included;  logits  bytes of vocabulary-wide tensors, apart from them
    gradient_elements   trainable elements whose gradient exists by then
    layer               the decoder layer in flight, None outside the stack
    fresh               those of `gradient_elements` made by the segment in flight (a layer, or one side of them)
    event               the number of the replay's event, by which the same instant is found again; -1 for none
    """

    phase: str
    activations: int
    logits: int
    gradient_elements: int
    layer: int | None
    fresh: int = 0
    event: int = -1

    @property
    def terms(self) -> tuple[Term, ...]:
        """Activations and logits, which `--explain` tells tensor by tensor."""
        what = "what the pass leaves alive"
        found = line("activations", self.activations, what, SOURCE), line("logits", self.logits, what, SOURCE)
        return tuple(term for term in found if term.size)
