"""prime-rl's own models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...versions import older

if TYPE_CHECKING:
    from ...job.job import Job

VERSION = "prime-rl"

SCALES_IN_PLACE, SKIPS_UNNEEDED = "0.4", "0.7.1"
"""Releases that first have a temperature a token (4fc312b0b), and leave out what needs no gradient (b7b1f874b)."""

_OWN = {
    **dict.fromkeys(("llama", "afmoe", "glm4_moe", "qwen3_moe"), ""),
    **dict.fromkeys(("qwen3", "glm_moe_dsa", "laguna", "minimax_m2", "nemotron_h", "gpt_oss"), "0.5.1"),
    **dict.fromkeys(("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"), "0.5.1"),
}
"""Model types that prime-rl has code of its own for, and since which release (trainer/models/__init__.py)."""


def own(job: Job, model_type: str) -> bool:
    """Whether prime-rl runs its own code of a model (`impl` auto) and not that of Transformers."""
    version = job.versions.get(VERSION)
    return version is not None and model_type in _OWN and not older(version, _OWN[model_type] or "0")
