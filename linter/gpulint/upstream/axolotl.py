"""axolotl."""

from __future__ import annotations

from .behaviour import Behaviour

NAME = "axolotl"

LORA_KERNELS = Behaviour(
    NAME,
    "turns its LoRA kernels on by itself",
    "utils/schemas/config.py `check_auto_enable_lora_kernels`",
    since="0.9.1",
)
WANTS_STATED_DROPOUT = Behaviour(
    NAME,
    "turns them on only where `lora_dropout: 0` is stated",
    "utils/schemas/config.py `check_auto_enable_lora_kernels`",
    since="0.10",
    until="0.16",
)
KERNELS_WITH_BIAS = Behaviour(
    NAME,
    "has its LoRA kernels take projections with a bias",
    "axolotl#3025",
    since="0.12",
)
OFF_UNDER_REMOTE_CODE = Behaviour(
    NAME,
    "leaves its LoRA kernels off under `trust_remote_code`",
    "axolotl#3378",
    since="0.15",
)
SHARDS_PACKED = Behaviour(
    NAME,
    "has FSDP 2 shard Params4bit and Int8Params",
    "monkeypatch/fsdp2_qlora.py",
    since="0.15",
)
KERNELS_WITH_DROPOUT = Behaviour(
    NAME,
    "has its LoRA kernels take dropout; before, a model with dropout stays as it is",
    "axolotl#3528, lora_kernels.py `can_patch`",
    since="0.16",
)
LEAN_KERNELS = Behaviour(
    NAME,
    "has its LoRA kernels leave the input as it is and add low-rank terms without making them in full",
    "axolotl#3704, #3800; src/axolotl/kernels/lora.py of 0.18",
    since="0.18",
)
OWN_SFT = Behaviour(
    NAME,
    "has a Trainer of its own for supervised fine-tuning, whatever TRL is beside it",
    "core/trainers/base.py `AxolotlTrainer`",
)
