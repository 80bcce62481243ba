"""What one layer keeps of a sequence."""

from __future__ import annotations

from typing import NamedTuple


class LayerCache(NamedTuple):
    """What one layer keeps, in elements.

    heads           key and value heads, of which tensor parallelism gives each rank whole ones
    head_elements   key plus value of one head and one token
    latent          per token, whole on every rank
    window          tokens kept; None for all
    conv            per sequence, of the convolution;  recurrent  per sequence, of the state
    cross           per request, of cross-attention to an encoder or an image, divided like heads
    fixed           per sequence, whole on every rank
    """

    heads: int = 0
    head_elements: int = 0
    latent: int = 0
    window: int | None = None
    conv: int = 0
    recurrent: int = 0
    cross: int = 0
    fixed: int = 0

    @property
    def grows(self) -> bool:
        """Whether it keeps something for each token."""
        return self.head_elements > 0 or self.latent > 0

    def token_elements(self, tensor: int = 1) -> int:
        """Elements per token on one of `tensor` ranks; heads stay whole, so fewer heads than ranks are repeated."""
        return -(-self.heads // tensor) * self.head_elements + self.latent

    def kept(self, tokens: int) -> int:
        """How many of `tokens` tokens it keeps."""
        return tokens if self.window is None else min(tokens, self.window)
