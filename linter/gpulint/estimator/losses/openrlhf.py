"""The log-probabilities of OpenRLHF's actor (0.7 to 0.11, openrlhf/models/actor.py Actor.forward).

Every token's logits become float32 under the name of the narrow ones, and flash-attn's cross entropy saves them whole
(flash_attn 2.8 ops/triton/cross_entropy.py, `inplace_backward` False: backward makes a gradient of their size). SFT and
PPO name the model's output, logits included, while backward runs (trainer/sft_trainer.py, trainer/ray/ppo_actor.py);
the pairs of DPO and KTO are scored in a function that has returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..inputs.objectives import PAIRED, UNPAIRED
from ..tape.backward import fresh
from ..tape.ops import to
from .output_head import head

if TYPE_CHECKING:
    from ..adapters.modules import Linear
    from ..tape.tensor import Tensor
    from .context import LossContext


def loss(h: Tensor, module: Linear, context: LossContext) -> Tensor:
    """6 bytes x tokens x vocabulary as the logits are widened, 8 in backward, 10 where the output is named."""
    _, dims, state, tape, _ = context
    logits = head(h, module, context.outside, dims.rows, dims)
    wide = to(logits, 4)
    del logits
    state.saved_for_next_step.clear()
    if dims.loss.objective not in PAIRED | UNPAIRED:
        state.saved_for_next_step.append(wide.storage)
    context.enter()
    return fresh(tape.new(dims.rows, 4), wide, wide.storage, logits=True)
