"""PEFT."""

from __future__ import annotations

from .behaviour import Behaviour

NAME = "peft"

FOLLOWS_BASE_DTYPE = Behaviour(
    NAME,
    "gives a LoRA adapter the dtype of a floating base; since, float32 over 16 bits (`cast_adapter_dtype`), and in 0.6"
    " the layer had no base yet when it ran",
    "tuners/lora/layer.py `update_layer`",
    since="0.7",
    until="0.12",
)
CONVERTS_EXPERT_TARGETS = Behaviour(
    NAME,
    "turns targets that name the experts' modules of earlier releases into parameters of the fused tensors",
    "tuners/tuners_utils.py `inject_adapter` (0.19)",
    since="0.19",
)
TRAINS_RANK_COUNT = Behaviour(
    NAME,
    "goes by modules to find what is trained, so that AdaLoRA's count of ranks in a 16-bit dtype wants a gradient;"
    " before, by the prefix of the parameter's name, which it has not",
    "tuners/tuners_utils.py `_mark_only_adapters_as_trainable`",
    since="0.21",
)
