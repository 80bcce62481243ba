"""The log-probabilities of OpenRLHF's actor (0.7 to 0.11, openrlhf/models/actor.py Actor.forward).

Every token's logits become float32 under the name of the narrow ones, and flash-attn's cross entropy saves them whole
(flash_attn 2.8 ops/triton/cross_entropy.py, `inplace_backward` False: backward makes a gradient of their size). SFT and
PPO name the model's output, logits included, while backward runs (trainer/sft_trainer.py, trainer/ray/ppo_actor.py);
the pairs of DPO and KTO are scored in a function that has returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..inputs.objectives import PAIRED, UNPAIRED
from ..tape.ops import to
from .output_head import head

if TYPE_CHECKING:
    from ..adapters.modules import Linear
    from ..layers.setting import Setting
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor


def loss(h: Tensor, module: Linear, s: Setting, tape: Tape, segment: int) -> Tensor:
    """6 bytes x tokens x vocabulary as the logits are widened, 8 in backward, 10 where the output is named."""
    logits = head(h, module, s.modules(None), s.rows, s)
    wide = to(logits, 4)
    del logits
    s.outputs.clear()
    if s.job.objective not in PAIRED | UNPAIRED:
        s.outputs.append(wide.storage)
    tape.enter(segment)
    n, kept = wide.n, wide.storage

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor]:
        return (tape.new(n, 4, logits=True),)

    result = tape.new(s.rows, 4)
    result.node = tape.node((wide,), back)
    return result
