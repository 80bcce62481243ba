"""The schemas that `scripts/` writes for these formats, held against what they claim."""

import json

import pytest

from gpulint.formats.core.keys import default, load, upstream
from gpulint.formats.hf_trainer.trainer_profiles import flavours


@pytest.mark.parametrize("name", ["hf_trainer", "llamafactory", "vllm"])
def test_replacements_of_removed_keys_exist(name):
    properties = load(name)["properties"]
    removed = {key: part for key, part in properties.items() if "x-removed" in part}
    assert len(removed) > 20
    for part in removed.values():
        successor = part.get("x-replacement")
        assert successor is None or "x-removed" not in properties[successor]


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("hf_trainer", "per_device_eval_batch_size", 8),
        ("hf_trainer", "optim", "adamw_torch_fused"),
        ("hf_trainer", "dtype", "float32"),
        ("hf_trainer", "num_generations", 8),
        ("hf_trainer", "vllm_gpu_memory_utilization", 0.3),
        ("llamafactory", "cutoff_len", 2048),
        ("llamafactory", "lora_target", "all"),
        ("llamafactory", "vllm_maxlen", 4096),
        ("llamafactory", "flash_attn", "auto"),
        ("vllm", "gpu-memory-utilization", 0.92),
        ("vllm", "tensor-parallel-size", 1),
        ("vllm", "max-lora-rank", 16),
    ],
)
def test_defaults_read_from_upstream(name, key, value):
    assert default(name, key) == value


def test_versions():
    assert upstream("hf_trainer") == "transformers 5.23.0, trl 1.16.0"
    assert upstream("llamafactory") == "llamafactory 0.9.5"
    assert upstream("vllm") == "vllm 0.33.0"


def test_trl_defaults_agree_with_the_schema():
    """`flavours.json` repeats upstream's defaults under its own names; they are the same."""
    row = next(row for row in flavours() if row.name == "trl")
    properties = load("hf_trainer")["properties"]
    names = (
        "lora_r", "lora_alpha", "lora_dropout", "max_length", "max_completion_length", "num_generations", "dtype",
        "vllm_gpu_memory_utilization", "vllm_mode", "optim",
    )  # fmt: skip
    for name in names:
        assert row.defaults[name] == properties[name]["default"], name
    assert properties["gradient_checkpointing"]["x-defaults"]["SFTConfig"] is row.defaults["gradient_checkpointing"]
    assert properties["beta"]["x-defaults"]["GRPOConfig"] == row.defaults["grpo_beta"]


def test_schemas_are_json_schema():
    from jsonschema import Draft202012Validator

    for name in ("hf_trainer", "llamafactory", "vllm", "job"):
        Draft202012Validator.check_schema(load(name))
        json.dumps(load(name))
