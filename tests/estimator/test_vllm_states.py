"""Blocks of a hybrid model's states in vLLM's pool, against what logs print of a pool of a known size."""

from __future__ import annotations

import pytest

from gpulint.estimator.serving.kv_cache import layer_caches
from gpulint.estimator.serving.vllm.rank_memory import rank_memory
from gpulint.estimator.serving.vllm.settings import settings
from gpulint.estimator.serving.vllm.states import with_states
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.models.resolve import resolve
from gpulint.units import GIB


def cache(model, **fields):
    job = Job.validate({"kind": "inference", "inference": {"engine": "vllm", **fields}})
    found, gpu = resolve(model), find("h100-80gb")
    chosen = settings(job, found, gpu)
    return rank_memory(job, found, gpu, chosen).cache, chosen


@pytest.mark.parametrize(
    ("model", "fields", "block_size"),
    [
        ("Qwen/Qwen3.5-9B", {"version": "0.20.0"}, 528),
        ("Qwen/Qwen3.6-27B", {"version": "0.30.0", "kv_cache_dtype": "fp8"}, 1568),
        ("RedHatAI/Qwen3.6-35B-A3B-NVFP4", {"version": "0.20.0", "kv_cache_dtype": "fp8"}, 2096),
    ],
)
def test_a_block_is_as_long_as_a_state_with_the_convolution_in_16_bits(model, fields, block_size):
    """53,328 tokens are 101 blocks of 528; "attention block size 1568 tokens"; 79,648 tokens are 38 blocks of 2096."""
    assert cache(model, max_model_len=4096, **fields)[0].block_size == block_size


def test_prefix_caching_keeps_two_states_of_a_request():
    """vLLM 0.20 with a pool of 3.07 GiB: 79,648 tokens, and 4.03 requests of 65,536.

    Requests shorter than a block have no longer blocks of states (Falcon-H1 in 0.12: 41 of 2,048 beside 2,080).
    """
    fields = {"version": "0.20.0", "kv_cache_dtype": "fp8", "max_model_len": 65536, "max_num_batched_tokens": 4096}
    found, chosen = cache("RedHatAI/Qwen3.6-35B-A3B-NVFP4", prefix_caching=True, **fields)
    size = round(3.07 * GIB)
    assert found.tokens(size, 65536) == 79_648
    assert found.tokens(size, 2048) == 38 * 2048
    assert round(found.concurrency(size, 65536, chosen.in_flight), 2) == 4.03
    without = cache("RedHatAI/Qwen3.6-35B-A3B-NVFP4", **fields)[0]
    assert found.request_blocks(65536, 4096) - without.request_blocks(65536, 4096) == 3


@pytest.mark.parametrize(
    ("version", "asked", "states"),
    [
        ("0.14.0", True, 1), ("0.15.1", True, 2), ("0.24.0", None, 1), ("0.26.0", None, 2), ("0.31.0", False, 1),
        (None, None, 2),
    ],
)  # fmt: skip
def test_prefix_caching_of_hybrid_models_is_on_since_0_26(version, asked, states):
    found, _ = cache("Qwen/Qwen3.6-27B", version=version, prefix_caching=asked, max_model_len=16000)
    recurrent = sum(group.groups for group in found.groups if group.recurrent)
    others = -(-16000 // found.block_size)
    assert found.request_blocks(16000, 8192) == others + states * recurrent


@pytest.mark.parametrize(("version", "whole"), [("0.20.0", True), ("0.28.0", False)])
def test_a_mamba_2_model_keeps_the_state_of_every_block_before_0_28(version, whole):
    name = "nvidia/NVIDIA-Nemotron-Nano-9B-v2"
    found, _ = cache(name, version=version, prefix_caching=True, max_model_len=65536)
    fewer, _ = cache(name, version=version, prefix_caching=False, max_model_len=65536)
    recurrent = sum(group.groups for group in found.groups if group.recurrent)
    each = -(-65536 // found.block_size) if whole else 2
    assert found.request_blocks(65536, 8192) - fewer.request_blocks(65536, 8192) == (each - 1) * recurrent


@pytest.mark.parametrize(("version", "wider"), [("0.11.2", False), ("0.15.1", False), ("0.20.0", True)])
def test_nemotron_h_s_states_are_float32_since_0_20(version, wider):
    name = "nvidia/NVIDIA-Nemotron-Nano-9B-v2"
    narrow, found = (cache(name, version=release, max_model_len=4096)[0] for release in ("0.11.2", version))
    assert (found.block_size > 1.9 * narrow.block_size) == wider


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({}, 0),
        ({"speculative_algorithm": "mtp"}, 1),
        ({"speculative_algorithm": "mtp", "speculative_tokens": 3}, 3),
        ({"speculative_algorithm": "ngram", "speculative_tokens": 4}, 4),
        ({"speculative_tokens": 4}, 0),
    ],
)
def test_a_request_keeps_a_state_more_for_each_drafted_token(fields, tokens):
    found, _ = cache("Qwen/Qwen3.5-9B", version="0.20.0", max_model_len=16000, **fields)
    recurrent = sum(group.groups for group in found.groups if group.recurrent)
    attending = sum(group.groups for group in found.groups if not group.recurrent)
    blocks = attending * -(-16000 // found.block_size)
    assert found.request_blocks(16000, 8192) == blocks + (1 + tokens) * recurrent


def test_drafted_tokens_widen_the_states_of_a_delta_rule_s_convolution():
    def state(tokens):
        caches = with_states(layer_caches(resolve("Qwen/Qwen3.5-9B")), resolve("Qwen/Qwen3.5-9B"), tokens)
        return max(item.conv for item in caches)

    assert state(3) == 2 * state(0)
