"""What other estimators say about the same jobs. Formulas are written anew from the sources that each file names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import accelerate, cookbook, deepspeed, fitcheck, llamafactory, thumb

if TYPE_CHECKING:
    from collections.abc import Callable

    from .question import Question

PEERS: dict[str, Callable[[Question], float]] = {
    "fitcheck-llm": fitcheck.answer,
    "accelerate estimate-memory": accelerate.answer,
    "DeepSpeed estimate_zero*": deepspeed.answer,
    "EleutherAI cookbook": cookbook.answer,
    "LLaMA-Factory README table": llamafactory.answer,
    "HF blog: states + max(gradients, activations)": thumb.blog,
    "16 B/parameter with Adam": thumb.adam,
    "8 GB per billion to fine-tune": thumb.fine_tune,
    "2 or 4 GB per billion to load": thumb.load,
    "1.2 x weights to serve": thumb.serve,
}
"""Name -> bytes on one GPU; each raises Unsaid for a job that the peer has no words for."""
