"""The decoder layers and losses of frameworks with their own model code, by the names of `frameworks.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import litgpt, megatron, openrlhf, qwen

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..layers.decoder import Layer
    from ..layers.modules import Linear
    from ..layers.setting import Setting
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor

    Block = Callable[[Layer, Tensor], Tensor]
    Loss = Callable[[Tensor, Linear, Setting, Tape, int], Tensor]

BLOCKS: dict[str, Block] = {"litgpt": litgpt.block}

LOSSES: dict[tuple[str, str], Loss] = {
    ("litgpt", "torch"): litgpt.loss,
    ("litgpt", "chunked"): litgpt.loss,
    ("megatron", "torch"): megatron.loss,
    ("megatron", "te_cross_entropy"): megatron.in_place,
    ("openrlhf", "torch"): openrlhf.loss,
    ("qwen", "torch"): qwen.loss,
}
"""Head and loss by the framework's name of it and the job's kernel.

Arguments: hidden states, head, setting, tape, segment of the loss.
"""
