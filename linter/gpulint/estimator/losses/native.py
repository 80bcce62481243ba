"""The losses of frameworks with a training loop of their own, by the names of `frameworks.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import litgpt, megatron, openrlhf, qwen

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..adapters.modules import Linear
    from ..tape.tensor import Tensor
    from .context import LossContext

    Loss = Callable[[Tensor, Linear, LossContext], Tensor]

LOSSES: dict[tuple[str, str], Loss] = {
    ("litgpt", "torch"): litgpt.loss,
    ("litgpt", "chunked"): litgpt.loss,
    ("megatron", "torch"): megatron.loss,
    ("megatron", "te_cross_entropy"): megatron.in_place,
    ("openrlhf", "torch"): openrlhf.loss,
    ("qwen", "torch"): qwen.loss,
}
"""Head and loss of hidden states by the framework's name of it and the job's kernel."""
