"""verl."""

from __future__ import annotations

from .behaviour import Default

NAME = "verl"

_CONFIGS = "trainer/config of the wheels 0.2 to 0.9.1"

DEFAULTS = (Default(NAME, "actor_rollout_ref.model.use_remove_padding", False, _CONFIGS, until="0.7"),)

SFT_DEFAULTS = (
    Default(NAME, "fsdp_version", 1, f"{_CONFIGS}, that of its SFT trainer", until="0.4"),
    Default(NAME, "enable_gradient_checkpointing", False, f"{_CONFIGS}, that of its SFT trainer", until="0.4.1"),
)
