"""What the config of a quantised checkpoint says to a server: of its weights, and of its KV cache."""

from __future__ import annotations

import pytest

from gpulint.estimator.estimate_job import estimate_inference, estimate_job
from gpulint.estimator.states.quantization import effective_quantization
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.models.resolve import resolve

from .llama import LLAMA_8B

FP8_CACHE = {"dynamic": False, "num_bits": 8, "type": "float"}
ATTENTION_KEPT = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "*.self_attn*"]}


def estimate(stored=None, engine="vllm", version=None, quantization=None, config=LLAMA_8B, **fields):
    config = config if stored is None else {**config, "quantization_config": stored}
    job = Job.validate(
        {
            "kind": "inference",
            "weights": {"quantization": quantization} if quantization else {},
            "inference": {"engine": engine, "version": version, "max_model_len": 4096, **fields},
        }
    )
    return estimate_inference(job, resolve(config), find("h100-80gb"))


def weights(found):
    return found.phases[0].components["weights"]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_server_s_quantization_argument_repeats_what_the_checkpoint_states(engine):
    told = estimate(ATTENTION_KEPT, engine, quantization={"method": "nvfp4", "bits": 4})
    assert weights(told) == weights(estimate(ATTENTION_KEPT, engine))


def test_an_argument_counts_where_the_checkpoint_states_nothing():
    plain = weights(estimate())
    assert weights(estimate(quantization={"method": "fp8", "bits": 8})) < 0.6 * plain


@pytest.mark.parametrize(
    ("engine", "version", "times"),
    [("vllm", "0.13.0", 1), ("vllm", "0.14.0", 2), ("vllm", None, 2), ("sglang", "0.4.9", 1), ("sglang", "0.5.12", 2)],
)
@pytest.mark.parametrize("stated", [{"kv_cache_scheme": FP8_CACHE}, {"kv_cache_quant_algo": "FP8"}])
def test_model_optimizer_s_fp8_cache_holds_twice_the_tokens(stated, engine, version, times):
    plain = estimate(ATTENTION_KEPT, engine, version).kv_cache
    found = estimate({**ATTENTION_KEPT, **stated}, engine, version).kv_cache
    assert found.bytes_per_token * times == plain.bytes_per_token


@pytest.mark.parametrize(("version", "times"), [("0.14.0", 1), ("0.15.1", 2)])
def test_compressed_tensors_cache_scheme_counts_since_0_15(version, times):
    stored = {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}},
    }
    plain = estimate(stored, version=version).kv_cache
    found = estimate({**stored, "kv_cache_scheme": FP8_CACHE}, version=version).kv_cache
    assert found.bytes_per_token * times == plain.bytes_per_token


def test_a_named_cache_dtype_wins_over_the_checkpoint_s():
    stored = {**ATTENTION_KEPT, "kv_cache_scheme": FP8_CACHE}
    found, plain = estimate(stored, kv_cache_dtype="bfloat16"), estimate(ATTENTION_KEPT)
    assert found.kv_cache.bytes_per_token == plain.kv_cache.bytes_per_token


def test_the_stated_cache_dtype_is_told():
    told = {item.field: item.value for item in estimate({**ATTENTION_KEPT, "kv_cache_scheme": FP8_CACHE}).assumptions}
    assert told["inference.kv_cache_dtype"] == "fp8"
    assert "inference.kv_cache_dtype" not in {item.field for item in estimate(ATTENTION_KEPT).assumptions}


def test_a_checkpoint_called_nvfp4_may_hold_twice_the_tokens():
    found = estimate(config="someone/Qwen3-8B-NVFP4")
    assert found.kv_cache.high > 1.9 * found.kv_cache.tokens
    assert "inference.kv_cache_dtype" in {item.field for item in found.assumptions}
    told = estimate(config="someone/Qwen3-8B-NVFP4", kv_cache_dtype="bfloat16")
    assert told.kv_cache.high < 1.1 * told.kv_cache.tokens


BLOCKS = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}


@pytest.mark.parametrize(
    ("fields", "packed"),
    [
        ({"method": "full"}, False),
        ({"method": "lora", "adapter": {"r": 8}}, True),
        ({"method": "lora", "adapter": {"r": 8}, "framework": "nemo-automodel"}, False),
        ({"method": "lora", "adapter": {"r": 8}, "framework": "megatron"}, False),
    ],
)
def test_an_fp8_checkpoint_is_trained_in_16_bits(fields, packed):
    """DeepSeek-V3's 671 B are trained, not the 2 B that its checkpoint leaves in 16 bits."""
    model = resolve({**LLAMA_8B, "quantization_config": BLOCKS, "torch_dtype": "bfloat16"})
    plan = Job.validate({"micro_batch_size": 1, "sequence_length": 512, **fields})
    assert (effective_quantization(plan, model) is not None) is packed
    if fields["method"] == "full":
        assert estimate_job(plan, model, None).trainable_parameters == model.parameters
