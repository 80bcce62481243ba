from __future__ import annotations

import pytest

from gpulint.rules.expression import UNKNOWN

JOB = """
gpulint: job/v1
model: {model}
weights: {{dtype: bfloat16}}
precision: {{autocast: bfloat16}}
micro_batch_size: {rows}
sequence_length: {tokens}
{extra}
"""


@pytest.fixture
def job(facts):
    def make(model="Qwen/Qwen2.5-0.5B", rows=1, tokens=1024, extra=""):
        return facts(text=JOB.format(model=model, rows=rows, tokens=tokens, extra=extra), name="job.yaml")

    return make


def test_a_model_class_refuses_the_kernels_it_does_not_support(job):
    assert job("google/gemma-2-2b", extra="attention: sdpa").get("attention.unsupported") is True
    assert job("google/gemma-2-2b", extra="attention: flash_attention_2").get("attention.unsupported") is False
    assert job("google/gemma-2-2b", extra="attention: eager").get("attention.unsupported") is False
    assert job(extra="attention: sdpa").get("attention.unsupported") is False
    assert job("nobody/nothing").get("attention.unsupported") is UNKNOWN


def test_layers_of_other_families_are_told_from_own_and_from_unheard_of_ones(job):
    fsdp = "parallelism: {{fsdp: {{wrap: transformer, layer_classes: {}}}}}"
    names = "[Qwen2DecoderLayer, LlamaDecoderLayer, TheirOwnLayer]"
    assert job(extra=fsdp.format(names)).get("fsdp.mismatched_layer_classes") == ["LlamaDecoderLayer"]
    assert job().get("fsdp.mismatched_layer_classes") is UNKNOWN
    vision = job("Qwen/Qwen2.5-VL-3B-Instruct", extra=fsdp.format("[LlamaDecoderLayer]"))
    assert vision.get("fsdp.mismatched_layer_classes") is UNKNOWN


def test_the_widest_head_of_a_model_with_two_kinds_counts(job):
    assert job().get("model.head_dim") == 64
    assert job("google/gemma-4-E2B-it").get("model.head_dim") == 512


def test_scores_grow_with_the_square_of_the_length(job):
    short, long = job(tokens=1024), job(tokens=2048)
    assert short.get("attention.score_bytes") == 14 * 1024**2 * 2
    assert long.get("attention.score_bytes") == 4 * short.get("attention.score_bytes")


def test_the_narrowest_matrix_leaves_routers_out(job):
    lora = "method: lora\nadapter: {r: 8, targets: all-linear}"
    assert job(extra=lora).get("adapter.max_effective_rank") == 128
    assert job("mistralai/Mixtral-8x7B-v0.1", extra=lora).get("adapter.max_effective_rank") == 1024
    assert job().get("adapter.max_effective_rank") is UNKNOWN


@pytest.mark.parametrize(
    ("model", "method"),
    [
        ("openai/gpt-oss-20b", "mxfp4"),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "awq"),
        ("unsloth/llama-3-8b-bnb-4bit", "bitsandbytes"),
        ("nobody/nothing-GPTQ", "gptq"),
        ("Qwen/Qwen2.5-0.5B", None),
        ("nobody/nothing", UNKNOWN),
    ],
)
def test_a_checkpoint_says_how_it_is_quantized_in_its_config_or_its_name(job, model, method):
    assert job(model).get("model.checkpoint_quantization") == method


def test_main_memory_is_told_apart_by_when_it_is_needed(job):
    known = job(extra="parallelism: {fsdp: {state_dict_type: FULL_STATE_DICT, wrap: transformer}}\nhardware: {gpus: 4}")
    assert known.get("host.load") == 4 * 2 * known.get("model.parameters")
    assert known.get("host.train") == 0
    assert known.get("host.save") >= 2 * known.get("model.parameters")
    assert known.get("gpus.per_node") == 4
