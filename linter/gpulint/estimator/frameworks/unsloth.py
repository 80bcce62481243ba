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

FIRST_TARGET = 1 * GIB
"""B before half of what the card has to spare was it (unsloth_zoo 2025.8.9)."""


def measures_card(job: Job) -> bool:
    """Whether the chunks of the loss depend on the card."""
    return job.loss.kernel == "unsloth" and unsloth.MEASURES_CARD.at(job.versions.get(unsloth.NAME))


def chunk_bytes(job: Job) -> tuple[int | None, bool]:
    """B, and whether chunks are rounded to the nearest multiple; what a card has to spare is at most half of it.

    Where no card is known there is a single chunk, None.
    """
    from ...hardware.catalogue import find

    release = job.versions.get(unsloth.NAME)
    if unsloth.CAPPED_CHUNKS.at(release):
        return TARGET, False
    if not unsloth.MEASURES_CARD.at(release):
        return FIRST_TARGET, True
    known = job.hardware.gpu if measures_card(job) else None
    return find(known).usable // 2 if known else None, True
