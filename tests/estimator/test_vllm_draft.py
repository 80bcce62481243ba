"""A model's own prediction layers (MTP) as vLLM's draft."""

from __future__ import annotations

import pytest

from gpulint.estimator.estimate_job import estimate_inference
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.models.resolve import resolve

from .llama import LLAMA_8B

GLM = {
    "model_type": "glm4_moe", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 4,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "n_routed_experts": 8,
    "num_experts_per_tok": 2, "moe_intermediate_size": 1024, "n_shared_experts": 1, "first_k_dense_replace": 3,
    "vocab_size": 65536, "max_position_embeddings": 8192, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "num_nextn_predict_layers": 1,
}  # fmt: skip


def estimate(config, algorithm=None, version=None, tensor=1):
    job = Job.validate(
        {
            "kind": "inference",
            "parallelism": {"tensor": tensor},
            "hardware": {"gpus": tensor},
            "inference": {
                "engine": "vllm", "max_model_len": 4096, "version": version, "speculative_algorithm": algorithm,
            },
        }
    )  # fmt: skip
    return estimate_inference(job, resolve(config), find("h100-80gb"))


def added(config, **fields):
    alone, drafted = (estimate(config, algorithm, **fields) for algorithm in (None, "mtp"))
    return drafted.phases[0].components["weights"] - alone.phases[0].components["weights"]


def test_the_prediction_layer_of_qwen3_5_is_its_last_full_layer_and_a_projection():
    """Its log with one of them: 18.12 GiB loaded, and 17.66 GiB without (vLLM 0.20.0 on an RTX 5090)."""
    layer = (8192 + 2 * 1024 + 4096) * 4096 + 3 * 12288 * 4096
    assert added("Qwen/Qwen3.5-9B", version="0.20.0") == pytest.approx(2 * (layer + 2 * 4096**2), rel=1e-2)


def test_the_prediction_layer_of_an_expert_model_has_experts_and_caches_like_a_layer():
    attention = 2 * 16 * 128 * 2048 + 2 * 8 * 128 * 2048
    experts = 9 * 3 * 1024 * 2048
    assert added(GLM) == pytest.approx(2 * (attention + experts + 2 * 2048**2), rel=1e-2)
    alone, drafted = (estimate(GLM, algorithm).kv_cache for algorithm in (None, "mtp"))
    assert drafted.bytes_per_token / alone.bytes_per_token == pytest.approx(5 / 4)


@pytest.mark.parametrize(("version", "head"), [("0.15.1", 2 * 65536 * 2048), ("0.20.0", 0)])
def test_a_head_of_its_own_stays_before_0_20(version, head):
    newest = added(GLM)
    assert added(GLM, version=version) - newest == pytest.approx(head, abs=2**20)


def test_the_release_may_stand_among_the_versions():
    job = Job.validate(
        {
            "kind": "inference",
            "inference": {"engine": "vllm", "max_model_len": 4096, "speculative_algorithm": "mtp"},
            "versions": {"vllm": "0.15.1"},
        }
    )
    found = estimate_inference(job, resolve(GLM), find("h100-80gb"))
    stated = estimate(GLM, "mtp", version="0.15.1")
    assert found.phases[0].components["weights"] == stated.phases[0].components["weights"]


def test_prediction_layers_of_a_4_bit_checkpoint_are_in_16_bits():
    packed = {**GLM, "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["mtp"]}}
    assert added(packed) == pytest.approx(added(GLM), rel=1e-2)
    eight = {**GLM, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    assert added(eight) < 0.7 * added(GLM)


def test_a_model_whose_prediction_layers_are_not_known_says_so():
    found = estimate(LLAMA_8B, "mtp")
    assert added(LLAMA_8B) == 0
    assert "inference.speculative_algorithm" in {item.field for item in found.assumptions}
