"""Unsloth's attention, and its fused head and loss (unsloth_zoo 2026.8 fused_losses/cross_entropy_loss.py).

B bytes that a chunk's float32 logits may take, T tokens, V vocabulary, h hidden size.
The loss runs each chunk of tokens forward and at once backward, in a graph of torch.compile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...units import GIB
from ...versions import older

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
    own = "unsloth" in job.versions and model.model_type in ATTENTIONS
    return own and job.kind == "training" and job.attention in ("sdpa", "xformers")


FLEX_FROM = "2.5"
"""The torch with flex attention, which takes soft-capped scores and has masks of blocks (kernels/flex_attention.py)."""

FLASH_FROM = "2024.8"
"""The release that leaves soft-capped scores to flash-attn where it is installed (30 July 2024)."""


def compiles_scores(job: Job, model: Model) -> bool:
    """Whether Gemma 2's soft-capped scores are torch.compile's (models/gemma2.py `Gemma2Attention_fast_forward`)."""
    release = job.versions.get("unsloth")
    if release is None or job.kind != "training" or model.model_type != "gemma2":
        return False
    flash = job.attention == "flash_attention_2" and not older(release, FLASH_FROM)
    return not flash and older(job.versions.get("torch"), FLEX_FROM)


TARGET = 4 * GIB
"""B (`_get_chunk_multiplier`). A card with less than twice as much to spare is given half of that, which nothing here
knows: more and smaller chunks than are counted."""

CAPPED = "2026.7.1"
"""The release with B (unsloth_zoo#857, which unsloth 2026.7.1 asks for and 2026.6.9 does not)."""

MEASURED, FIRST_TARGET = "2025.9.1", 1 * GIB
"""From MEASURED to CAPPED half of what the card has to spare is B (unsloth_zoo 2025.9.1, `mem_get_info`), before it
FIRST_TARGET (2025.8.9)."""


def measures_card(job: Job) -> bool:
    """Whether the chunks of the loss depend on the card."""
    release = job.versions.get("unsloth")
    return job.loss.kernel == "unsloth" and older(release, CAPPED) and not older(release, MEASURED)


def chunk_bytes(job: Job) -> tuple[int | None, bool]:
    """B, and whether chunks are rounded to the nearest multiple; what a card has to spare is at most half of it.

    Where no card is known there is a single chunk, None.
    """
    from ...hardware.catalogue import find

    release = job.versions.get("unsloth")
    if not older(release, CAPPED):
        return TARGET, False
    if older(release, MEASURED):
        return FIRST_TARGET, True
    known = job.hardware.gpu if measures_card(job) else None
    return find(known).usable // 2 if known else None, True
