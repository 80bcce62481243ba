"""Unsloth's attention, and its fused head and loss (unsloth_zoo 2026.8 fused_losses/cross_entropy_loss.py).

B bytes that a chunk's float32 logits may take, T tokens, V vocabulary, h hidden size.
The loss runs each chunk of tokens forward and at once backward, in a graph of torch.compile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...units import GIB
from ...upstream import unsloth
from ...upstream.stack import Stack
from ...upstream.torch import FLEX_ATTENTION

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.model import Model
    from ..layers.modules import Linear
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor

ATTENTIONS = frozenset({"gemma", "llama", "mistral", "phi3", "qwen2", "qwen3"})
"""Model types whose attention Unsloth wrote anew with xformers' kernel where flash-attn is not installed, which has no
soft-capped scores. Phi-3's weights are in Llama's or Mistral's shape in its repositories (models/mapper.py)."""


def takes_xformers(job: Job, model: Model) -> bool:
    """Whether Unsloth's classes call xformers, with keys and values that are repeated for every query head.

    Source: unsloth 2024.8 to 2025.11 models/llama.py, mistral.py, qwen3.py (`if hidden_states.requires_grad: K =
    K.reshape(...)`), from 2025.12 on utils/attention_dispatch.py `run_attention`.
    """
    own = Stack(job).runs(unsloth.NAME) and model.model_type in ATTENTIONS
    return own and job.kind == "training" and job.attention in ("sdpa", "xformers")


def compiles_scores(job: Job, model: Model) -> bool:
    """Whether Gemma 2's soft-capped scores are torch.compile's (models/gemma2.py `Gemma2Attention_fast_forward`)."""
    stack = Stack(job)
    if not stack.runs(unsloth.NAME) or job.kind != "training" or model.model_type != "gemma2":
        return False
    flash = job.attention == "flash_attention_2" and stack.does(unsloth.FLASH_SOFTCAP)
    return not flash and not stack.does(FLEX_ATTENTION)


TARGET = 4 * GIB
"""B (`_get_chunk_multiplier`). A card with less than twice as much to spare is given half of that, which nothing here
knows: more and smaller chunks than are counted."""

STEP = 4
"""More than one chunk are a multiple of so many (`get_chunk_size`)."""

FIRST_TARGET = 1 * GIB
"""B before half of what the card has to spare was it (unsloth_zoo 2025.8.9)."""


def chunk(rows: int, vocabulary: int, version: str | None = None, card: int | None = None) -> int:
    """Tokens of the first chunk, ceil(T/n): n = 1 where 4 T V <= B, else ceil(4 T V / B) rounded up to STEP.

    Before `CAPPED_CHUNKS` n is 4 T V / B rounded to the nearest multiple of STEP, at least 1. What a card of `card`
    bytes has to spare is at most that; where no card is known there is a single chunk.
    """
    exact = 4 * rows * vocabulary
    if not unsloth.CAPPED_CHUNKS.at(version):
        half = card // 2 if card else exact
        target = half if unsloth.MEASURES_CARD.at(version) else FIRST_TARGET
        return -(-rows // max(1, STEP * round(exact / (target * STEP))))
    if exact <= TARGET:
        return rows
    count = -(-exact // (TARGET * STEP)) * STEP
    return -(-rows // count)


def measures_card(job: Job) -> bool:
    """Whether the chunks of the loss depend on the card."""
    return job.loss.kernel == "unsloth" and unsloth.MEASURES_CARD.at(job.versions.get(unsloth.NAME))


def _card(job: Job) -> int | None:
    from ...hardware.catalogue import find

    return find(job.hardware.gpu).usable if job.hardware.gpu and measures_card(job) else None


def head_and_loss(h: Tensor, module: Linear, rows: int, tape: Tape, job: Job) -> Tensor:
    """Saved: the gradient of h, and a trained head's, both of which backward multiplies by the loss's.

    Alive for a chunk: its logits and their gradient in autocast's width or the head's (what is float32 between them
    stays in the graph's kernels), head and hidden states in that width where theirs is another, its part of the
    gradient of h and a head's gradient before it is added up.
    """
    n, e, weight = h.n, h.e, module.weight
    inner = n // rows
    vocabulary = weight.n // inner
    part = chunk(rows, vocabulary, job.versions.get(unsloth.NAME), _card(job))
    needed = h.node is not None
    gradient = tape.new(n, e)
    summed = tape.new(weight.n, weight.e) if weight.trainable else None
    width = tape.autocast or weight.e
    operands = [tape.new(size, width) for size, own in ((weight.n, weight.e), (part * inner, e)) if own != width]
    wide = [tape.new(part * vocabulary, width, logits=True) for _ in ("logits", "gradient")]
    tape.scratch(e * part * inner + (weight.n * weight.e if summed is not None else 0))
    del operands, wide
    held = gradient.storage, None if summed is None else summed.storage

    def back(_: Tensor, _kept: object = held) -> tuple[Tensor | None, Tensor | None]:
        scaled = tape.new(n, e)
        return (scaled if needed else None), (tape.new(weight.n, weight.e) if weight.trainable else None)

    loss = tape.new(1, 4)
    loss.node = tape.node((h, weight), back)
    return loss
