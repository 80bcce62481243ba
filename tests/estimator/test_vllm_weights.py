"""What vLLM makes of the weights: latent projections and padded experts, and how it stores a latent token."""

from __future__ import annotations

import pytest

from gpulint.estimator.estimate_job import estimate_inference
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.models.resolve import resolve
from gpulint.units import MIB

LATENT = {
    "model_type": "deepseek_v2",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "moe_intermediate_size": 1408,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 102400,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
GPT_OSS = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 2,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "vocab_size": 201088,
    "max_position_embeddings": 131072,
    "quantization_config": {"quant_method": "mxfp4"},
}


def estimate(config, gpu="h100-80gb", tensor=1, **fields):
    plan = Job.validate(
        {
            "kind": "inference",
            "parallelism": {"tensor": tensor, **fields.pop("parallelism", {})},
            "hardware": {"gpus": tensor},
            "inference": {"engine": "vllm", "max_model_len": 4096, **fields},
        }
    )
    return estimate_inference(plan, resolve(config), find(gpu))


def weights(*args, **fields):
    return estimate(*args, **fields).components["weights"]


def test_the_first_latent_attention_multiplied_absorbed_projections():
    """Four layers of 16 heads: W_Q W_UK, W_UV W_O and W_QR in 16 bits."""
    absorbed = 2048 * 16 * 512 + 16 * 512 * 2048 + 2048 * 16 * 64
    plain = weights(LATENT, version="0.8.4")
    assert weights(LATENT, version="0.7.2") - plain == 4 * 2 * absorbed
    assert weights(LATENT, version="0.28.0") == plain


def test_quantised_latent_attention_keeps_unpacked_up_projections():
    """Both versions hold kv_b_proj packed; W_UK and W_UV of 16 heads beside it in 16 bits."""
    packed = {**LATENT, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    terms = {term.size for term in estimate(packed, version="0.8.4").terms if "up-projections" in term.label}
    assert terms == {4 * 2 * 16 * 512 * 256}


def test_ranks_share_the_up_projections_of_latent_attention():
    """kv_b_proj 4096 x 512 and the queries' 3072 x 2048 are halved; the down-projection to 576 is not."""
    one, two = (weights(LATENT, tensor=tensor, version="0.8.4") for tensor in (1, 2))
    whole = 4 * 2 * 576 * 2048
    assert one / 2 < two < one / 2 + whole


@pytest.mark.parametrize(("version", "elements"), [("0.7.1", 576), ("0.7.2", 640), ("0.8.4", 576)])
def test_a_latent_token_was_aligned_to_256_bytes(version, elements):
    """27 layers x 1,280 B were read from a log of 0.7.2; here 4 layers."""
    assert estimate(LATENT, version=version).kv_cache.bytes_per_token == 4 * 2 * elements


@pytest.mark.parametrize(("version", "head"), [("0.5.1", 256), ("0.6.6", 256), ("0.7.0", 192)])
def test_keys_and_values_of_all_heads_were_cached_before_latent_attention(version, head):
    """35.42 GiB were 5,373 blocks of 16 tokens for 27 layers of 16 heads, padded to 256; here 4 layers, halved by 2."""
    assert estimate(LATENT, version=version).kv_cache.bytes_per_token == 4 * 2 * 16 * head * 2
    assert estimate(LATENT, version=version, tensor=2).kv_cache.bytes_per_token == 4 * 2 * 8 * head * 2
    assert "absorbed" not in str(estimate(LATENT, version=version).terms)


@pytest.mark.parametrize("version", ["0.6.6", "0.11.0"])
def test_minicpm3_caches_no_latent(version):
    config = {**LATENT, "model_type": "minicpm3", "q_lora_rank": 768}
    assert estimate(config, version=version).kv_cache.bytes_per_token == 4 * 2 * 16 * 192 * 2


@pytest.mark.parametrize(("dtype", "size"), [("fp8", 576), ("fp8_ds_mla", 656), ("nvfp4_ds_mla", 352)])
def test_a_latent_token_is_packed_as_its_dtype_says(dtype, size):
    assert estimate(LATENT, kv_cache_dtype=dtype).kv_cache.bytes_per_token == 4 * size


def test_marlin_pads_mxfp4_experts_and_triton_their_values():
    """2,880 becomes 2,944 and 3,072: 32 experts x 2 layers x 3 matrices, 4 bits and a scale for each 32.

    Triton on Hopper: rows of 5,760 to 5,888 and of 2,880 to 3,072, columns of 2,880 to 2,944, the values alone.
    """
    plain = 3 * 2880 * 2880
    marlin = (3 * 2944 * 3072 - plain) * 17 // 32
    triton = ((5888 + 3072) * 2944 - plain) // 2
    added = 2 * 32 * (marlin - triton)
    found = weights(GPT_OSS, gpu="a100-80gb") - weights(GPT_OSS, gpu="h100-80gb")
    assert found == pytest.approx(added, abs=4 * MIB)


def test_expert_parallel_ranks_hold_whole_experts():
    """Eight experts over four ranks are two whole ones, as many bytes as a quarter of each."""
    shared, whole = (weights(LATENT, tensor=4, version="0.8.4", parallelism={"expert": expert}) for expert in (1, 4))
    assert whole == pytest.approx(shared, rel=1e-3)


def test_all_of_a_card_is_never_free():
    found = estimate(LATENT, gpu_memory_utilization=1.0)
    assert found.verdict == "exceeds"
    assert "free" in found.refusal


@pytest.mark.parametrize(
    ("name", "open_"),
    [("cyankiwi/Qwen3-Next-80B-A3B-Instruct-AWQ-4bit", True), ("Qwen/Qwen2.5-72B-Instruct-AWQ", False)],
)
def test_what_a_hybrid_checkpoint_s_name_does_not_say_may_take_room(name, open_):
    """Groups of 32, and recurrent mixers in 16 bits: two L40S had 17.58 GiB left, of some 20 by groups of 128."""
    given = {"engine": "vllm", "version": "0.13.0", "max_model_len": 32768, "max_num_seqs": 8}
    ranks = {"parallelism": {"tensor": 2}, "hardware": {"gpus": 2}}
    cache = estimate_inference(
        Job.validate({"kind": "inference", "inference": given, **ranks}), resolve(name), find("l40s")
    ).kv_cache
    assert (cache.low < 0.9 * cache.tokens) is open_
