"""The decoder layers and losses of frameworks with their own model code, by the names of `frameworks.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import litgpt

if TYPE_CHECKING:
    from collections.abc import Callable

    from .layers import Layer
    from .modules import Linear
    from .setting import Setting
    from .tape import Tape
    from .tensor import Tensor

    Block = Callable[[Layer, Tensor], Tensor]
    Loss = Callable[[Tensor, Linear, Setting, Tape, int], Tensor]

BLOCKS: dict[str, Block] = {"litgpt": litgpt.block}

LOSSES: dict[str, Loss] = {"litgpt": litgpt.loss}
"""Head and loss: (hidden states, head, setting, tape, segment of the loss) -> loss."""
