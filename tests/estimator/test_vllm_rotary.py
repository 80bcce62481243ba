"""The rotary tables of a served model."""

from __future__ import annotations

import pytest

from gpulint.estimator.serving.vllm.weights import rotary_products, tables
from gpulint.estimator.terms import total
from gpulint.models.resolve import resolve

ROW = 2 * 128
"""Bytes of one position: head width 128 in 16 bits."""


def rotary_cache(model, element, multimodal=4):
    """Bytes of all tables."""
    return total(rotary_products(model, element, multimodal))


@pytest.mark.parametrize(
    ("config", "positions"),
    [
        ({}, 8192),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 1024}}, 8192),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 32768),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}}, 16384),
        ({"rope_scaling": {"type": "longrope", "original_max_position_embeddings": 4096}}, 12288),
        ({"rope_scaling": {"type": "default", "mrope_section": [16, 24, 24]}}, 32768),
        ({"partial_rotary_factor": 0.5}, 4096),
        ({"rotary_dim": 64}, 4096),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}}, 16384),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}, "sliding_attention": {"rope_theta": 1e4}}}, 8192),
        ({"alibi": True}, 0),
    ],
)
def test_positions_and_width_follow_the_rope_parameters(decoder, config, positions):
    assert rotary_cache(decoder(layers=2, **config), 2) == positions * ROW


def test_latent_attention_turns_its_own_part(decoder):
    model = decoder(layers=2)
    latent = model._replace(shape=model.shape._replace(kv_lora_rank=512, qk_rope_head_dim=64))
    assert rotary_cache(latent, 2) == 8192 * 2 * 64


def test_gemma_3_has_a_second_table_for_its_windows(decoder):
    model = decoder(layers=2, rope_local_base_freq=10000.0)
    assert rotary_cache(model, 2) == 8192 * ROW
    sliding = model._replace(shape=model.shape._replace(windows=(1024, None)))
    assert rotary_cache(sliding, 2) == 2 * 8192 * ROW


def test_learned_positions_need_none(decoder):
    model = decoder(layers=1)
    table = model.tensors[0]._replace(name="wpe.weight", role="position")
    assert rotary_cache(model._replace(tensors=(*model.tensors, table)), 2) == 0


def test_gemma_2_had_a_table_a_layer():
    """gemma-2-9b-it on eight L4 took 2.35 GiB of weights in vLLM 0.5.4: 42 tables of 4 MiB are 0.16 of them."""
    model = resolve("google/gemma-2-9b-it")
    assert [tables(model, version) for version in ("0.5.4", "0.6.0", None)] == [42, 1, 1]
    assert tables(resolve("google/gemma-3-4b-it"), "0.5.4") == 1


def test_deepseek_v4_has_two_tables_in_float32():
    model = resolve("deepseek-ai/DeepSeek-V4-Flash")
    assert rotary_cache(model, 2) == 2 * model.shape.max_positions * 64 * 4
