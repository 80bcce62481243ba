"""Unsloth, and the unsloth_zoo that its releases ask for."""

from __future__ import annotations

from .behaviour import Behaviour

NAME = "unsloth"

PADDED_LABELS = Behaviour(
    NAME,
    "shifts the labels and leaves the logits as they are, in the width they have",
    "models/llama.py `CausalLM_fast_forward`",
)
GROWING_TABLES = Behaviour(
    NAME,
    "has rotary tables of four steps of 8,192 positions at first, which grow by a step; before, of all positions",
    "models/llama.py `LlamaRotaryEmbedding` (18 July 2024)",
    since="2024.7",
)
FLASH_SOFTCAP = Behaviour(
    NAME,
    "leaves soft-capped scores to flash-attn where it is installed",
    "models/gemma2.py (30 July 2024)",
    since="2024.8",
)
CUT_CROSS_ENTROPY = Behaviour(
    NAME,
    "takes cut cross entropy as the loss of plain training; before, its own cross entropy over whole logits",
    "17 November 2024",
    since="2024.11.8",
)
SHARED_TABLES = Behaviour(
    NAME,
    "hands the model's rotary module to each layer; before, every attention module had tables of its own",
    "models/llama.py `from_pretrained` (7 January 2025)",
    since="2025.1",
)
FUSED_LOSS = Behaviour(
    NAME,
    "takes a fused loss of its own in the place of cut cross entropy",
    "unsloth_zoo fused_losses/cross_entropy_loss.py (13 August 2025)",
    since="2025.8.5",
)
MEASURES_CARD = Behaviour(
    NAME,
    "takes half of what the card has to spare for the logits of a chunk of its loss; before, 1 GiB",
    "unsloth_zoo 2025.9.1 fused_losses/cross_entropy_loss.py (`mem_get_info`); 2025.8.9",
    since="2025.9.1",
    until="2026.7.1",
)
CAPPED_CHUNKS = Behaviour(
    NAME,
    "takes 4 GiB at the most for the logits of a chunk",
    "unsloth_zoo#857, which unsloth 2026.7.1 asks for and 2026.6.9 does not",
    since="2026.7.1",
)
LINEAR_EXPERTS = Behaviour(
    NAME,
    "makes gpt-oss's experts nn.Linear where it packs",
    "unsloth_zoo temporary_patches/gpt_oss.py `GptOssExpertsBnb4bit`",
)
