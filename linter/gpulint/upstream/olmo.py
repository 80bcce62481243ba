"""OLMo's own training code, ai2-olmo."""

from __future__ import annotations

from .behaviour import Behaviour

NAME = "ai2-olmo"

FLASH_OFF = Behaviour(
    NAME,
    "turns torch's flash kernel off where `flash_attention` is false",
    "olmo/model.py of v0.2.5 and v0.3.0 (`enable_flash_sdp`, `enable_mem_efficient_sdp`)",
    until="0.3",
)
EFFICIENT_OFF = Behaviour(
    NAME,
    "turns torch's memory-efficient attention kernel off",
    "olmo/model.py of v0.2.5 and v0.3.0 (`enable_mem_efficient_sdp`)",
)
