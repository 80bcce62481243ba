"""OpenRLHF."""

from __future__ import annotations

from ..behaviour import Behaviour, Default

NAME = "openrlhf"

FLASH_ASKED_FOR = Behaviour(
    NAME,
    "runs eager attention unless asked for flash attention",
    "models/actor.py up to 0.8.9 (`--flash_attn`)",
    until="0.8.10",
)

_COMMANDS = "cli/train_*.py of the wheels 0.5.0 to 0.11.2"

DEFAULTS = (
    Default(NAME, "vllm_gpu_memory_utilization", 0.9, _COMMANDS, until="0.7"),
    Default(NAME, "ppo_ray_micro_batch_size", 4, _COMMANDS, until="0.10"),
)
