"""What decoders keep of the tokens they have seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulint.estimator.estimate import NotEstimable
from gpulint.estimator.serving.kv_cache import bytes_per_token, cache_bytes, layer_caches, sequence_bytes
from gpulint.models.resolve import resolve

from .llama import LLAMA_7B

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 97,
    "max_position_embeddings": 256,
}
TOKENS, WINDOW = 40, 16


def attention(layers: int, kv_heads: int, head_dim: int, tokens: int = TOKENS) -> int:
    """Keys and values of `layers` layers, in elements."""
    return 2 * layers * kv_heads * head_dim * tokens


FAMILIES = {
    "llama": ({**SMALL, "model_type": "llama"}, attention(4, 2, 16)),
    "falcon": (
        {
            "model_type": "falcon",
            "hidden_size": 64,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "vocab_size": 97,
            "multi_query": True,
            "new_decoder_architecture": False,
        },
        attention(4, 1, 16),
    ),
    "mistral": ({**SMALL, "model_type": "mistral", "sliding_window": WINDOW}, attention(4, 2, 16, WINDOW)),
    "gemma2": (
        {**SMALL, "model_type": "gemma2", "sliding_window": WINDOW},
        attention(2, 2, 16) + attention(2, 2, 16, WINDOW),
    ),
    "gemma3_text": (
        {**SMALL, "model_type": "gemma3_text", "num_hidden_layers": 6, "sliding_window": WINDOW},
        attention(1, 2, 16) + attention(5, 2, 16, WINDOW),
    ),
    "gpt_oss": (
        {
            **SMALL,
            "model_type": "gpt_oss",
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": WINDOW,
        },
        attention(2, 2, 16) + attention(2, 2, 16, WINDOW),
    ),
    "deepseek_v3": (
        {
            **SMALL,
            "model_type": "deepseek_v3",
            "moe_intermediate_size": 32,
            "num_key_value_heads": 4,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "kv_lora_rank": 32,
            "q_lora_rank": 24,
            "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 64,
            "v_head_dim": 16,
            "first_k_dense_replace": 1,
        },
        4 * (32 + 64) * TOKENS,
    ),
    "mamba": (
        {
            "model_type": "mamba",
            "hidden_size": 64,
            "num_hidden_layers": 4,
            "vocab_size": 97,
            "state_size": 16,
            "conv_kernel": 4,
            "expand": 2,
        },
        4 * (128 * 4 + 128 * 16),
    ),
    "mamba2": (
        {
            "model_type": "mamba2",
            "hidden_size": 64,
            "num_hidden_layers": 4,
            "vocab_size": 97,
            "state_size": 16,
            "conv_kernel": 4,
            "expand": 2,
            "num_heads": 8,
            "head_dim": 16,
            "n_groups": 1,
        },
        4 * ((128 + 2 * 16) * 4 + 8 * 16 * 16),
    ),
    "qwen3_next": (
        {
            **SMALL,
            "model_type": "qwen3_next",
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 32,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "linear_conv_kernel_dim": 4,
        },
        attention(1, 2, 16) + 3 * ((2 * 2 * 8 + 4 * 8) * 4 + 4 * 8 * 8),
    ),
    "lfm2": (
        {
            "model_type": "lfm2",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 97,
            "conv_L_cache": 3,
            "layer_types": ["conv", "conv", "full_attention", "conv"],
        },
        attention(1, 2, 16) + 3 * 64 * 3,
    ),
    "jamba": (
        {
            "model_type": "jamba",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 97,
            "num_experts": 2,
            "num_experts_per_tok": 1,
            "attn_layer_period": 4,
            "attn_layer_offset": 2,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "mamba_d_state": 16,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
            "mamba_dt_rank": 4,
        },
        attention(1, 2, 16) + 3 * (128 * 4 + 128 * 16),
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_keeps_what_its_layers_store(family):
    config, elements = FAMILIES[family]
    assert sequence_bytes(layer_caches(resolve(config)), TOKENS, 1.0) == elements


def test_llama_7b_at_64_sequences_of_2048_tokens_takes_68_7_gb():
    caches = layer_caches(resolve(LLAMA_7B))
    assert bytes_per_token(caches, 2.0) == 524_288
    assert 64 * sequence_bytes(caches, 2048, 2.0) == 68_719_476_736


def test_layers_that_share_a_cache_store_nothing():
    config = {
        **SMALL,
        "model_type": "gemma3n_text",
        "num_hidden_layers": 6,
        "layer_types": ["sliding_attention", "full_attention"] * 3,
        "sliding_window": WINDOW,
        "num_kv_shared_layers": 2,
        "vocab_size_per_layer_input": 97,
        "hidden_size_per_layer_input": 8,
        "altup_num_inputs": 2,
        "laurel_rank": 4,
    }
    expected = attention(2, 2, 16) + attention(2, 2, 16, WINDOW)
    assert sequence_bytes(layer_caches(resolve(config)), TOKENS, 1.0) == expected


def test_tensor_parallelism_gives_each_rank_whole_heads():
    caches = layer_caches(resolve({**SMALL, "model_type": "llama"}))
    one = bytes_per_token(caches, 2.0)
    assert bytes_per_token(caches, 2.0, tensor=2) == one // 2
    assert bytes_per_token(caches, 2.0, tensor=4) == one // 2


def test_latent_attention_is_whole_on_every_rank():
    caches = layer_caches(resolve(FAMILIES["deepseek_v3"][0]))
    assert bytes_per_token(caches, 2.0, tensor=8) == bytes_per_token(caches, 2.0) == 4 * 96 * 2


def test_pipeline_stages_keep_their_own_layers():
    caches = layer_caches(resolve(LLAMA_7B))
    assert bytes_per_token(caches, 2.0, pipeline=4) == 524_288 // 4
    assert bytes_per_token(caches, 2.0, pipeline=5) == 7 * 16_384


@pytest.mark.parametrize(
    ("cache", "weights", "size"),
    [
        (None, "bfloat16", 2),
        ("auto", "float32", 4),
        ("auto", "float8", 2),
        ("fp8", "bfloat16", 1),
        ("fp8_e5m2", "float16", 1),
        ("bfloat16", "float32", 2),
        ("nvfp4", "bfloat16", 1 / 2 + 1 / 16),
        ("nvfp4_4over6", "bfloat16", 1 / 2 + 1 / 16),
    ],
)
def test_the_cache_has_the_stated_dtype_or_the_models(cache, weights, size):
    assert cache_bytes(cache, weights) == size


@pytest.mark.parametrize(("name", "size"), [("int8", 128), ("fp8", 128), ("int4", 64)])
def test_scales_of_a_head_are_four_bytes_for_key_and_value_each(name, size):
    assert 256 * cache_bytes(f"{name}_per_token_head", "bfloat16", 256) == 2 * (size + 4)


@pytest.mark.parametrize("name", ["turboquant_k8v4", "ultraquant_4bit", "fp3"])
def test_a_dtype_of_unknown_width_is_said_to_be_unknown(name):
    with pytest.raises(NotEstimable, match=name):
        cache_bytes(name, "bfloat16")


@given(
    st.sampled_from(sorted(FAMILIES)),
    st.integers(0, 1 << 20),
    st.integers(0, 1 << 20),
    st.sampled_from([1, 2, 4, 8, 16]),
    st.sampled_from([1, 2, 4, 8, 16]),
)
def test_more_tokens_never_take_less_and_more_ranks_never_more(family, tokens, more, ranks, factor):
    caches = layer_caches(resolve(FAMILIES[family][0]))
    size = sequence_bytes(caches, tokens, 2.0, tensor=ranks)
    assert sequence_bytes(caches, tokens + more, 2.0, tensor=ranks) >= size
    assert sequence_bytes(caches, tokens, 2.0, tensor=ranks * factor) <= size


def test_an_encoder_keeps_nothing():
    bert = {"model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
    assert not any(cache.grows for cache in layer_caches(resolve({**bert, "vocab_size": 30522})))
    assert all(cache.grows for cache in layer_caches(resolve({**bert, "vocab_size": 30522, "is_decoder": True})))


def test_the_state_of_a_parallel_hybrid_has_the_width_of_its_own_heads():
    """Falcon-H1-0.5B: 24 heads of 64 with states of 128, not twice the hidden size."""
    config = resolve("tiiuae/Falcon-H1-0.5B-Instruct")
    assert {cache.recurrent for cache in layer_caches(config)} == {24 * 64 * 128}
