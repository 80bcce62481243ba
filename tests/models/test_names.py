"""What a repository's or folder's name tells of a model."""

from __future__ import annotations

import pytest

from gpulint.models.catalogue import find
from gpulint.models.names import cached_id, named_quantization, namesake, stored_copy


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("TheBloke/Llama-2-7B-Chat-GPTQ", "gptq"),
        ("TheBloke/Mistral-7B-v0.1-AWQ", "awq"),
        ("unsloth/llama-3-8b-bnb-4bit", "bnb-nf4"),
        ("neuralmagic/Meta-Llama-3-8B-Instruct-FP8", "fp8"),
        ("nvidia/Llama-3.1-8B-Instruct-NVFP4", "nvfp4"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "gptq"),
        ("RedHatAI/Qwen3-8B-quantized.w4a16", "gptq"),
        ("RedHatAI/Qwen3-8B-quantized.w8a16", "int8"),
        ("01-ai/Yi-34B-Chat-4bits", "int4"),
        ("axolotl-quants/DeepSeek-V2.5-bnb-nf4-bf16", "bnb-nf4"),
        ("google/gemma-4-31B-it-qat-w4a16-ct", "gptq"),
        ("google/gemma-3-4b-it-qat-int4-unquantized", None),
        ("meta-llama/Meta-Llama-3-8B", None),
        ("org-awq/model", None),
        ("someone/awqward", None),
    ],
)
def test_quantisation_that_only_the_name_states(name, method):
    assert named_quantization(name) == method


@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("TheBloke/Mistral-7B-v0.1-GPTQ", "mistralai/Mistral-7B-v0.1"),
        ("TheBloke/Llama-2-13B-chat-AWQ", "meta-llama/Llama-2-13b-chat-hf"),
        ("someone/Qwen2.5-7B-Instruct-FP8-dynamic", "Qwen/Qwen2.5-7B-Instruct"),
        ("RedHatAI/Qwen3-8B-quantized.w4a16", "Qwen/Qwen3-8B"),
        ("amd/Llama-3.1-70B-Instruct-FP8-KV", "meta-llama/Llama-3.1-70B-Instruct"),
        ("Intel/Qwen3-8B-int4-AutoRound", "Qwen/Qwen3-8B"),
        ("axolotl-quants/DeepSeek-V2.5-bnb-nf4-bf16", "deepseek-ai/DeepSeek-V2.5"),
        ("01-ai/Yi-34B-Chat-4bits", "01-ai/Yi-34B-Chat"),
        ("google/gemma-4-31B-it-qat-w4a16-ct", "google/gemma-4-31B-it"),
        ("google/gemma-3-27b-it-qat-q4_0-unquantized", "google/gemma-3-27b-it"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-4B-FP8", "nvidia/NVIDIA-Nemotron-3-Nano-4B-BF16"),
    ],
)
def test_a_copy_stored_otherwise_has_the_dimensions_of_the_model_it_names(name, of):
    found, meant = stored_copy(name), find(of)
    assert found is not None
    assert meant is not None
    assert found.parameters == meant.parameters


@pytest.mark.parametrize(
    "name",
    [
        "someone/Mistral-7B-v0.1",
        "x/no-such-model-GPTQ",
        "x/Llama-3-8B-GGUF",
        "awq",
        "x/-awq",
        "x/Qwen3-8B-AutoRound",
        "x/Qwen3-8B-static",
    ],
)
def test_other_names_are_no_copies(name):
    assert stored_copy(name) is None


@pytest.mark.parametrize(
    ("reference", "of"),
    [
        ("/data/models/Meta-Llama-3-8B-Instruct", "meta-llama/Meta-Llama-3-8B-Instruct"),
        ("~/ckpt/Qwen2.5-7B/", "Qwen/Qwen2.5-7B"),
        ("LLM-Research/Meta-Llama-3-8B-Instruct", "meta-llama/Meta-Llama-3-8B-Instruct"),
        ("/cache/models--Qwen--Qwen2.5-7B/snapshots/0123abc", "Qwen/Qwen2.5-7B"),
        ("/root/.cache/modelscope/hub/Qwen/Qwen2___5-7B", "Qwen/Qwen2.5-7B"),
    ],
)
def test_a_folder_or_mirror_bears_the_name_of_a_model(reference, of):
    found, meant = namesake(reference), find(of)
    assert found is not None
    assert meant is not None
    assert found.parameters == meant.parameters


@pytest.mark.parametrize(
    "reference",
    [
        "",
        "/",
        "/model",
        "/models/llama",
        "checkpoints/sft",
        "~/Qwen2.5-7B/final",
        "/x/models--no--such/snapshots/a",
        "/7B",
    ],
)
def test_other_names_are_nobody_s(reference):
    assert namesake(reference) is None


@pytest.mark.parametrize(
    ("folder", "of"),
    [
        ("/ckpt/Qwen2.5-7B-mcore", "Qwen/Qwen2.5-7B"),
        ("/ckpt/Qwen2.5-7B_torch_dist", "Qwen/Qwen2.5-7B"),
        ("Qwen2.5-7B-mcore-tp2-pp3", "Qwen/Qwen2.5-7B"),
    ],
)
def test_a_converted_checkpoint_bears_the_name_of_its_model(folder, of):
    found = stored_copy(folder)
    assert found is not None
    assert found.id == of


@pytest.mark.parametrize(
    ("path", "of"),
    [
        ("/cache/models--Qwen--Qwen2.5-7B/snapshots/0123abc", "Qwen/Qwen2.5-7B"),
        ("hub/models--gpt2", "gpt2"),
        ("/models/Qwen/Qwen2.5-7B", None),
    ],
)
def test_a_folder_of_the_hub_cache_is_the_id(path, of):
    assert cached_id(path) == of
