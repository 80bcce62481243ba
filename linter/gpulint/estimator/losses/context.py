"""Where a loss is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..adapters.modules import Linear, Modules
    from ..layers.dims import LayerDims
    from ..layers.state import ReplayState
    from ..tape.tape import Tape


class LossContext(NamedTuple):
    """What every head and loss needs beside hidden states or logits.

    outside  the modules outside the layers;  segment  of the tape, which begins where the loss function does
    """

    outside: Modules
    dims: LayerDims
    state: ReplayState
    tape: Tape
    segment: int

    @property
    def head(self) -> Linear:
        """The output head, or the embedding that it is tied to."""
        return self.outside.role("head") or self.outside.need("embedding")

    def enter(self) -> None:
        """The forward function hands over to the loss's."""
        self.tape.enter(self.segment)
