"""The loss of the first Qwen's remote code (Qwen/Qwen-7B modeling_qwen.py QWenLMHeadModel.forward).

The logits keep their width: a shifted copy of them goes into the cross entropy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tape.indexing import shortened
from ..tape.tensor import mark
from .output_head import head
from .pieces import cross_entropy

if TYPE_CHECKING:
    from ..adapters.modules import Linear
    from ..layers.setting import Setting
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor


def loss(h: Tensor, module: Linear, s: Setting, tape: Tape, segment: int) -> Tensor:
    """3 e bytes x tokens x vocabulary in the loss, 4 more under autocast, and 4 at once behind it."""
    logits = head(h, module, s.modules(None), s.rows, s)
    tape.enter(segment)
    s.returned.append(logits)
    shifted = shortened(logits, logits.n - s.batch * (logits.n // s.rows), s.batch)
    mark(shifted)
    return cross_entropy(shifted, None, tape)
