"""One row for each program: what its flags and config files are."""

from __future__ import annotations

from .flags import Manner
from .programs import Program

_VLLM = {
    "tp": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "dp": "data-parallel-size",
    "q": "quantization",
    "cc": "compilation-config",
    "sc": "speculative-config",
}

PROGRAMS: tuple[Program, ...] = (
    Program(
        "vllm",
        (
            "vllm serve",
            "-m vllm.entrypoints.openai.api_server",
            "-m vllm.entrypoints.api_server",
            "-m vllm.entrypoints.cli.main serve",
        ),
        Manner(short=_VLLM, positionals=("model",)),
        config=("config",),
    ),
    Program(
        "axolotl",
        (
            "axolotl train",
            "axolotl preprocess",
            "-m axolotl.cli.train",
            "-m axolotl.cli.preprocess",
            "scripts/finetune.py",
        ),
        file=True,
    ),
    Program(
        "llamafactory",
        (
            "llamafactory-cli train",
            "lmf train",
            "-m llamafactory.launcher",
            "llamafactory/launcher.py",
            "src/train.py",
            "src/train_bash.py",
        ),
    ),
    Program(
        "litgpt",
        ("litgpt", "-m litgpt"),
        Manner(nested=True, positionals=("command", "checkpoint_dir")),
        config=("config",),
    ),
    Program(
        "torchtune",
        ("tune run",),
        Manner(switches=lambda name: name == "standalone", nested=True, overrides=True, positionals=("recipe",)),
        config=("config",),
    ),
    Program(
        "hf_trainer",
        ("trl sft", "trl dpo", "trl grpo", "trl kto", "trl orpo", "trl reward", "trl rloo", "trl ppo"),
        config=("config",),
    ),
)
