"""LitGPT."""

from __future__ import annotations

from .behaviour import Behaviour

NAME = "litgpt"

STABLE_EMBEDDING = Behaviour(
    NAME,
    "replaces the embedding by bitsandbytes' StableEmbedding where weights are packed",
    "lightning fabric/plugins/precision/bitsandbytes.py",
    since="0.5",
)
