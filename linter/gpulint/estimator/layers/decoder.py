"""A layer that runs: the block that is its architecture's, and what becomes of eager attention's probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tape.ops import add, to
from ..tape.tape import tape_of
from .blocks import BLOCKS
from .layer import Layer

if TYPE_CHECKING:
    from ..tape.tensor import Tensor

PART = "residual stream"


class DecoderLayer(Layer):
    """Local variables live as long as those of the modelling code, which decides when a temporary goes."""

    def __call__(self, x: Tensor) -> Tensor:
        """The layer's output; eager probabilities go with the layer unless the model's loop has a name for them."""
        before = tape_of(x).returned
        y = self.run(x)
        del before
        tape = tape_of(x)
        if tape.again and self.dims.arch.held:
            tape.given_back = tape.returned
        if not self.dims.arch.held or tape.again:
            tape.returned = None
        return y

    def run(self, x: Tensor) -> Tensor:
        """One branch where the layer has no more (state-space models, Nemotron-H), a framework's own block, or two."""
        if self.single:
            branch = self.attention if self.mixing else self.mlp
            if self.dims.float_residual:
                return add(to(x, 4), branch(self.norm(to(x, self.modules.named["norm"].weight.e), 0)))
            return add(x, branch(self.norm(x, 0)))
        own = self.dims.block and self.modules.role("down") is not None and not self.dims.attention.latent
        return BLOCKS[self.dims.block if own else self.dims.arch.order](self, x)
