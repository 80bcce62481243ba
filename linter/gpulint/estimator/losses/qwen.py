"""The loss of the first Qwen's remote code (Qwen/Qwen-7B modeling_qwen.py QWenLMHeadModel.forward).

The logits keep their width: a shifted copy of them goes into the cross entropy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tape.indexing import shortened
from ..tape.tensor import count_as_logits
from .output_head import head
from .pieces import cross_entropy

if TYPE_CHECKING:
    from ..adapters.modules import Linear
    from ..tape.tensor import Tensor
    from .context import LossContext


def loss(h: Tensor, module: Linear, context: LossContext) -> Tensor:
    """3 e bytes x tokens x vocabulary in the loss, 4 more under autocast, and 4 at once behind it."""
    dims = context.dims
    logits = head(h, module, context.outside, dims.rows, dims)
    context.enter()
    context.state.module_outputs.append(logits)
    shifted = shortened(logits, logits.n - dims.batch * (logits.n // dims.rows), dims.batch)
    count_as_logits(shifted)
    return cross_entropy(shifted, None, context.tape)
