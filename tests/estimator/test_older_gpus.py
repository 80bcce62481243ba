"""torch's attention on GPUs before Ampere, which have no flash kernel and none at all of bfloat16 but the composite."""

from __future__ import annotations

import pytest

from gpulint.estimator.frameworks.attention import composite, sdpa_kernels
from gpulint.estimator.serving.generation.decoding import attended
from gpulint.estimator.serving.generation.prefill import attention_products
from gpulint.estimator.terms import total
from gpulint.estimator.training import estimate_training
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.models.resolve import resolve

GROUPED = {
    "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 2, "vocab_size": 2048,
    "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings": 8192,
}  # fmt: skip
OWN_KEYS = {**GROUPED, "num_key_value_heads": 16}
LENGTH = 2048
SCORES = 16 * LENGTH * LENGTH
OLDER = {"transformers": "4.50.0", "torch": "2.6.0"}


def training(gpu: str, dtype: str = "bfloat16", loss: str = "torch", **versions: str) -> Job:
    return Job.validate(
        {
            "kind": "training",
            "method": "full",
            "weights": {"dtype": dtype},
            "optimizer": {"name": "sgd"},
            "micro_batch_size": 1,
            "sequence_length": LENGTH,
            "packing": True,
            "activation_checkpointing": "full",
            "attention": "sdpa",
            "loss": {"kernel": loss},
            "hardware": {"gpu": gpu, "gpus": 1},
            "versions": versions,
        }
    )


def generation(gpu: str, dtype: str, **versions: str) -> Job:
    return Job.validate(
        {
            "kind": "inference",
            "attention": "sdpa",
            "weights": {"dtype": dtype},
            "hardware": {"gpu": gpu, "gpus": 1},
            "versions": versions,
            "inference": {"engine": "transformers", "batch_size": 1, "prompt_length": LENGTH, "new_tokens": 8},
        }
    )


def activations(job: Job, config: dict[str, object]) -> int:
    return estimate_training(job, resolve(config), None).components["activations"]


@pytest.mark.parametrize(("gpu", "dtype", "versions", "kernels"), [
    ("t4", "bfloat16", {}, "math"),
    ("t4", "bfloat16", {"torch": "2.4.1"}, "narrow math"),
    ("v100-32gb", "float16", {}, "efficient"),
    ("a10", "bfloat16", {}, "flash"),
    ("mi300x", "bfloat16", {}, "flash"),
])  # fmt: skip
def test_the_kernel_that_a_gpu_has_for_16_bits(gpu, dtype, versions, kernels):
    assert sdpa_kernels(training(gpu, dtype, **versions)) == kernels


def test_what_computes_decides_and_not_how_weights_are_kept():
    job = training("t4", "float32")
    job.precision.autocast = "float16"
    assert sdpa_kernels(job) == "efficient"


@pytest.mark.parametrize(("olmo", "torch", "kernels"), [
    ("0.2.5", "2.2.2", "narrow math"), ("0.2.5", "2.5.0", "math"), ("0.3.0", "2.2.2", "flash"),
])  # fmt: skip
def test_olmo_turned_flash_attention_off_before_0_3(olmo, torch, kernels):
    job = training("h100-80gb", **{"ai2-olmo": olmo, "torch": torch})
    job.framework = "ai2-olmo"
    assert sdpa_kernels(job) == kernels
    job.weights.dtype = "float16"
    assert sdpa_kernels(job) == kernels
    job.attention = "flash_attention_2"
    assert sdpa_kernels(job) == "flash"


def test_olmo_before_0_3_keeps_the_scores_of_every_layer():
    def kept(olmo: str) -> int:
        job = training("h100-80gb", **{"ai2-olmo": olmo, "torch": "2.2.2"})
        job.framework = "ai2-olmo"
        job.activation_checkpointing = "none"
        return activations(job, OWN_KEYS)

    assert 2 * 2 * SCORES <= kept("0.2.5") - kept("0.3.0") < 4 * 2 * SCORES


def test_bfloat16_on_a_t4_makes_the_scores_in_float32():
    more = activations(training("t4"), OWN_KEYS) - activations(training("a10"), OWN_KEYS)
    assert 2.5 * 4 * SCORES < more < 4 * 4 * SCORES


def test_before_torch_2_5_scores_stayed_in_16_bits():
    few, many = (activations(training("t4", torch=torch), OWN_KEYS) for torch in ("2.4.1", "2.6.0"))
    assert few < 0.7 * many


def test_float16_takes_the_composite_where_keys_are_shared():
    def scores(config: dict[str, object], **versions: str) -> float:
        job, other = (training(gpu, "float16", **versions) for gpu in ("t4", "a10"))
        return (activations(job, config) - activations(other, config)) / (4 * SCORES)

    assert scores(GROUPED) > 2
    assert scores(GROUPED, **OLDER) < 0.2
    assert scores(OWN_KEYS) < 0.2


def test_unsloth_takes_a_kernel_of_its_own():
    assert sdpa_kernels(training("t4", loss="unsloth_cross_entropy")) == "flash"


def test_a_prompt_and_a_new_token_on_a_t4():
    model = resolve(OWN_KEYS)
    old, new = (generation(gpu, "bfloat16") for gpu in ("t4", "a10"))
    more = total(attention_products(model, old, 1, LENGTH, 2.0)) - total(attention_products(model, new, 1, LENGTH, 2.0))
    assert more > 8 * SCORES
    copies = total(attended(old, model, 1, LENGTH, 2.0)) - total(attended(new, model, 1, LENGTH, 2.0))
    assert copies == 12 * LENGTH * 1024


def test_shared_keys_are_copied_for_every_head_in_float32():
    found = total(attended(generation("t4", "float16"), resolve(GROUPED), 1, LENGTH, 2.0))
    assert found == LENGTH * 64 * 4 * (3 * 16 + 2 * 4)
    assert composite(generation("t4", "float16"), True, False, 2.0) == ""


@pytest.mark.parametrize(("olmo", "kernels"), [("0.2.5", "math"), ("0.5.1", "math"), (None, "efficient")])
def test_olmo_turns_the_efficient_kernel_off(olmo, kernels):
    job = training("v100-32gb", "float16", **{"torch": "2.5.1", "ai2-olmo": olmo or "0.2.5"})
    job.framework = "ai2-olmo" if olmo else None
    assert sdpa_kernels(job) == kernels


def test_transformer_engine_has_no_fused_attention_before_ampere():
    """GPT-2 774M with batches of four on a V100 of 32 GB ran out of memory at 28.8 GiB (Megatron-LM, issue 525)."""
    model = resolve("gpt2-large")
    fields = {
        "model": "gpt2-large", "framework": "megatron", "method": "full", "objective": "pretrain",
        "weights": {"dtype": "float16"}, "precision": {"master_weights": True}, "micro_batch_size": 4,
        "sequence_length": 1024, "packing": True, "attention": "flash_attention_2",
    }  # fmt: skip
    scores = 4 * 20 * 1024 * 1024
    old, new = (
        estimate_training(Job.validate({**fields, "hardware": {"gpu": name}}), model, find(name)).components[
            "activations"
        ]
        for name in ("v100-32gb", "a100-80gb")
    )
    assert old - new > 2 * 36 * 2 * scores
