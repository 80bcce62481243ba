"""prime-rl."""

from __future__ import annotations

from ..behaviour import Behaviour, BehaviourByType, Default, since

NAME = "prime-rl"

OWN_MODELS = BehaviourByType(
    NAME,
    "has code of its own for a model type, which `impl` auto takes",
    "trainer/models/__init__.py",
    types=since(
        {
            "": "llama afmoe glm4_moe qwen3_moe",
            "0.5.1": "qwen3 glm_moe_dsa laguna minimax_m2 nemotron_h gpt_oss qwen3_5 qwen3_5_text qwen3_5_moe"
            " qwen3_5_moe_text",
        }
    ),
)
TEMPERATURE_A_TOKEN = Behaviour(
    NAME,
    "has a temperature for each token; before, it scales the logits in place",
    "commit 4fc312b0b",
    since="0.4",
)
SKIPS_UNNEEDED = Behaviour(
    NAME,
    "makes no gradient in its head that nothing needs",
    "commit b7b1f874b",
    since="0.7.1",
)

_CONFIGS = "trainer/config.py and configs/trainer.py of the tags v0.3.0 to v0.8.1.dev67"

DEFAULTS = (
    Default(NAME, "head", "columns", _CONFIGS, until="0.5"),
    Default(NAME, "chunk", 2048, _CONFIGS, until="0.5"),
    Default(NAME, "chunk", None, _CONFIGS, since="0.5", until="0.6.1"),
    Default(NAME, "chunk", 1024, _CONFIGS, since="0.6.1", until="0.8.1"),
    Default(NAME, "saving", False, f"{_CONFIGS}: compile, ac, ac_offloading and optim_cpu_offload", until="0.6.1"),
    Default(NAME, "ep", 1, _CONFIGS, until="0.6.1"),
    Default(NAME, "sft_head", False, _CONFIGS, until="0.7.1"),
)
