"""The loss of the first Qwen's remote code (Qwen/Qwen-7B modeling_qwen.py QWenLMHeadModel.forward).

The logits keep their width: a shifted copy of them goes into the cross entropy, which only autocast widens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..losses.chunks import cross_entropy
from ..losses.output_head import head
from ..tape.indexing import window
from ..tape.ops import contiguous, to
from ..tape.tensor import mark

if TYPE_CHECKING:
    from ..layers.modules import Linear
    from ..layers.setting import Setting
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor


def loss(h: Tensor, module: Linear, s: Setting, tape: Tape, segment: int) -> Tensor:
    """3 e bytes x tokens x vocabulary in the loss, under autocast 2 e + 8."""
    logits = head(h, module, s.modules(None), s.rows, s)
    tape.enter(segment)
    shifted = contiguous(window(logits, logits.n))
    mark(shifted)
    return cross_entropy(to(shifted, 4) if s.autocast else shifted, tape)
