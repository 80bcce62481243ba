"""The losses of frameworks with a training loop of their own, by the names of `frameworks.json`.

LitGPT's loss.

Source: Lightning-AI/litgpt 0.5, litgpt/utils.py `chunked_cross_entropy`, litgpt/finetune/lora.py; Lightning fabric
HalfPrecision.convert_output (logits in float32 under `bf16-true`).

The log-probabilities of OpenRLHF's actor (0.7 to 0.11, openrlhf/models/actor.py Actor.forward).

Every token's logits become float32 under the name of the narrow ones, and flash-attn's cross entropy saves them whole
(flash_attn 2.8 ops/triton/cross_entropy.py, `inplace_backward` False: backward makes a gradient of their size). SFT and
PPO name the model's output, logits included, while backward runs (trainer/sft_trainer.py, trainer/ray/ppo_actor.py);
the pairs of DPO and KTO are scored in a function that has returned.

The loss of the first Qwen's remote code (Qwen/Qwen-7B modeling_qwen.py QWenLMHeadModel.forward).

The logits keep their width: a shifted copy of them goes into the cross entropy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..adapters.linear import project
from ..inputs.objectives import PAIRED, UNPAIRED
from ..tape.backward import fresh
from ..tape.indexing import cat, shortened, split, total
from ..tape.labels import labelled
from ..tape.ops import to
from ..tape.tensor import count_as_logits
from . import megatron
from .output_head import head
from .pieces import cross_entropy

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..adapters.modules import Linear
    from ..tape.tensor import Tensor
    from .context import LossContext

    Loss = Callable[[Tensor, Linear, LossContext], Tensor]


CHUNK = 128
"""Tokens of every sequence that the head, and rows that the cross entropy, takes at a time."""


def litgpt(h: Tensor, module: Linear, context: LossContext) -> Tensor:
    """Logits in chunks of the sequence, all float32, and their cross entropies; `logits` lives through backward.

    Full fine-tuning makes the logits whole and takes the cross entropy in chunks of rows.
    Forward: e + 4 bytes x tokens x vocabulary, then 8. Backward: 8, each chunk's gradient in its log-softmax's place.
    """
    _, dims, state, tape, _ = context
    chunk = CHUNK * dims.batch if dims.prompt.adapted else dims.rows
    sizes = [min(chunk, dims.rows - start) for start in range(0, dims.rows, chunk)]
    width = h.n // dims.rows
    pieces = split(h, [size * width for size in sizes]) if len(sizes) > 1 else [h]
    narrow = [project(piece, module, size) for piece, size in zip(pieces, sizes, strict=True)]
    for logits in narrow:
        count_as_logits(logits)
    context.enter()
    wide = [to(logits, 4) for logits in narrow]
    del narrow
    state.saved_for_next_step[:] = [logits.storage for logits in wide]
    if not dims.prompt.adapted:
        vocabulary = wide[0].n // dims.rows
        wide = split(wide[0], [size * vocabulary for size in _row_chunks(dims.rows)])
    losses = [cross_entropy(logits, None, tape) for logits in wide]
    return total(cat(losses), 1)


def _row_chunks(rows: int) -> list[int]:
    return [min(CHUNK, rows - start) for start in range(0, rows, CHUNK)]


@labelled("loss")
def openrlhf(h: Tensor, module: Linear, context: LossContext) -> Tensor:
    """6 bytes x tokens x vocabulary as the logits are widened, 8 in backward, 10 where the output is named."""
    _, dims, state, tape, _ = context
    logits = head(h, module, context.outside, dims.rows, dims)
    wide = to(logits, 4)
    del logits
    state.saved_for_next_step.clear()
    if dims.job.objective not in PAIRED | UNPAIRED:
        state.saved_for_next_step.append(wide.storage)
    context.enter()
    return fresh(tape.new(dims.rows, 4), wide, wide.storage, logits=True)


def qwen(h: Tensor, module: Linear, context: LossContext) -> Tensor:
    """3 e bytes x tokens x vocabulary in the loss, 4 more under autocast, and 4 at once behind it."""
    dims = context.dims
    logits = head(h, module, context.outside, dims.rows, dims)
    context.enter()
    context.state.module_outputs.append(logits)
    shifted = shortened(logits, logits.n - dims.batch * (logits.n // dims.rows), dims.batch)
    count_as_logits(shifted)
    return cross_entropy(shifted, None, context.tape)


LOSSES: dict[tuple[str, str], Loss] = {
    ("litgpt", "torch"): litgpt,
    ("litgpt", "chunked"): litgpt,
    ("megatron", "torch"): megatron.loss,
    ("megatron", "te_cross_entropy"): megatron.in_place,
    ("openrlhf", "torch"): openrlhf,
    ("qwen", "torch"): qwen,
}
"""Head and loss of hidden states by the framework's name of it and the job's kernel."""
