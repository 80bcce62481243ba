"""Decoder layers: in which order norm, attention and MLP meet the residual stream.

Local variables here live as long as those of the modelling code they follow; that is what decides when a temporary
goes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .attention import attention
from .mlp import feed_forward
from .norms import NORMS
from .ops import add, dropout, scale

if TYPE_CHECKING:
    from collections.abc import Callable

    from .kernels import Heads
    from .modules import Modules
    from .rope import Table
    from .setting import Setting
    from .tape import Tensor


class Layer:
    """One decoder layer of a kind. `table`, `mask` and `positions` are made once for all layers."""

    def __init__(self, s: Setting, layer: int, table: Table, mask: Tensor | None, positions: Tensor) -> None:
        self.s = s
        self.modules: Modules = s.modules(layer)
        self.table = table
        self.mask = mask
        self.positions = positions
        self.at: Heads = s.at()
        self._norm = NORMS[s.traits.norm]

    def __call__(self, x: Tensor) -> Tensor:
        return ORDERS[self.s.traits.order](self, x)

    def norm(self, x: Tensor, slot: int) -> Tensor:
        """The norm of a slot: before attention, after it, before the MLP, after it."""
        name = self.s.traits.norms[slot]
        module = self.modules.leaf(name)
        if module is None:
            found = self.modules.norms(self.s.hidden)
            module = found[min(slot // 2, len(found) - 1)] if found else None
        return self._norm(x, module, self.s.rows)

    def attention(self, x: Tensor) -> Tensor:
        """Attention and the dropout after it."""
        y = attention(x, self.modules, self.s, self.table, self.mask, self.at)
        return dropout(y, self.s.residual_dropout)

    def mlp(self, x: Tensor) -> Tensor:
        """The MLP and the dropout after it."""
        y = feed_forward(x, self.modules, self.s)
        return dropout(y, self.s.residual_dropout)

    def scaled(self, x: Tensor) -> Tensor:
        """Granite's residual multiplier."""
        return scale(x) if self.s.traits.residual_scale else x

    def pre(self, x: Tensor) -> Tensor:
        residual = x
        h = self.norm(x, 0)
        if self.s.traits.keeps == "attention":
            branch = self.attention(h)
            h = add(branch, residual)
        else:
            h = self.attention(h)
            h = add(residual, self.scaled(h))
        residual = h
        h = self.norm(h, 2)
        h = self.mlp(h)
        h = add(residual, self.scaled(h))
        return h

    def sandwich(self, x: Tensor) -> Tensor:
        residual = x
        h = self.norm(x, 0)
        h = self.attention(h)
        h = self.norm(h, 1)
        h = add(residual, h)
        residual = h
        h = self.norm(h, 2)
        h = self.mlp(h)
        h = self.norm(h, 3)
        h = add(residual, h)
        return h

    def post(self, x: Tensor) -> Tensor:
        residual = x
        h = self.attention(x)
        h = self.norm(h, 1)
        h = add(residual, h)
        residual = h
        h = self.mlp(h)
        h = self.norm(h, 3)
        h = add(residual, h)
        return h

    def parallel(self, x: Tensor) -> Tensor:
        residual = x
        h = self.norm(x, 0)
        branch = self.attention(h)
        if self.s.traits.norm == "cohere":
            other = self.mlp(h)
            h = add(add(residual, branch), other)
            return h
        other = self.mlp(h)
        h = add(add(branch, other), residual)
        return h


ORDERS: dict[str, Callable[[Layer, Tensor], Tensor]] = {
    "pre": Layer.pre,
    "sandwich": Layer.sandwich,
    "post": Layer.post,
    "parallel": Layer.parallel,
}
