"""States of a hybrid model in SGLang, and servers that keep no token."""

from __future__ import annotations

import pytest

from gpulint.estimator.estimate_job import estimate_inference
from gpulint.estimator.serving.sglang.cache import caches_no_token, request_bytes, set_aside
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.models.resolve import resolve

QWEN, PLAIN = "Qwen/Qwen3.5-9B", "Qwen/Qwen2.5-7B-Instruct"
STATE = 24 * (32 * 128 * 128 * 4 + (2 * 16 * 128 + 32 * 128) * 3 * 2)
"""Bytes of a request in the 24 layers of Qwen3.5-9B that keep a state: float32, and 16-bit convolutions of four."""


def server(version="0.5.15", tensor=1, **fields):
    given = {"engine": "sglang", "version": version, "max_model_len": 8192, "gpu_memory_utilization": 0.8, **fields}
    return Job.validate({"kind": "inference", "parallelism": {"tensor": tensor}, "inference": given})


def test_the_states_of_a_request():
    model = resolve(QWEN)
    assert request_bytes(server(), model) == STATE
    assert request_bytes(server(tensor=2), model) == STATE / 2


@pytest.mark.parametrize(
    ("version", "fields", "requests"),
    [
        ("0.5.15", {}, None),
        ("0.5.15", {"max_num_seqs": 32}, None),
        ("0.5.15", {"prefix_caching": False}, None),
        ("0.5.15", {"prefix_caching": False, "max_num_seqs": 32}, 32),
        ("0.5.15", {"max_states": 64, "max_num_seqs": 32}, 64),
        ("0.5.15", {"max_states": 64, "speculative_algorithm": "NEXTN"}, None),
        ("0.5.6", {"max_states": 64}, None),
        ("0.5.6", {"prefix_caching": False, "max_states": 64}, 64),
        ("0.5.6", {"prefix_caching": False}, 512),
    ],
)
def test_a_stated_number_of_requests_has_its_states_set_aside(version, fields, requests):
    expected = None if requests is None else requests * STATE
    assert set_aside(server(version, **fields), resolve(QWEN), version) == expected


def test_what_is_set_aside_is_not_divided():
    """Of one pool: the states of 32 requests, and tokens in all the rest."""
    card, model = find("h100-80gb"), resolve(QWEN)
    apart = estimate_inference(server(prefix_caching=False, max_num_seqs=32), model, card)
    divided = estimate_inference(server(max_num_seqs=32), model, card)
    kept = apart.kv_cache.tokens * apart.kv_cache.bytes_per_token
    assert kept + 32 * STATE == pytest.approx(divided.kv_cache.tokens * divided.kv_cache.bytes_per_token, rel=1e-3)
    assert apart.per_gpu.allocated == pytest.approx(divided.per_gpu.allocated, rel=1e-3)
    assert apart.kv_cache.tokens > 1.5 * divided.kv_cache.tokens
    assert apart.kv_cache.max_concurrency == pytest.approx(apart.kv_cache.tokens / 8192, abs=0.01)


def test_the_share_of_states_is_as_stated():
    card, model = find("h100-80gb"), resolve(QWEN)
    few, usual = (estimate_inference(server(state_ratio=ratio), model, card).kv_cache.tokens for ratio in (0.1, None))
    assert few / usual == pytest.approx(1.9 / 1.1, rel=1e-3)


def test_a_model_without_states_is_served_the_same():
    assert set_aside(server(prefix_caching=False, max_num_seqs=32), resolve(PLAIN), "0.5.15") is None


@pytest.mark.parametrize(
    ("model", "version", "gpu", "fields", "none"),
    [
        ("google/embeddinggemma-300m", "0.5.17", "h100-80gb", {}, True),
        ("google/embeddinggemma-300m", "0.5.16", "h100-80gb", {}, False),
        ("google/embeddinggemma-300m", "0.5.17", "a100-80gb", {}, False),
        ("google/gemma-3-1b-it", "0.5.17", "h100-80gb", {}, False),
        (PLAIN, "0.5.17", "a100-80gb", {"kv_cache_off": True}, True),
    ],
)
def test_servers_that_keep_no_token(model, version, gpu, fields, none):
    assert caches_no_token(server(version, **fields), resolve(model), find(gpu), version) is none


def test_without_a_cache_the_rest_of_the_share_stays_free():
    """EmbeddingGemma on an H100 at 0.5 with 0.5.18: nvidia-smi 2,476 MiB, of which graphs took a part."""
    found = estimate_inference(server("0.5.18"), resolve("google/embeddinggemma-300m"), find("h100-80gb"))
    assert found.kv_cache is None
    assert found.verdict == "fits"
    assert found.per_gpu.low < 2476 * 2**20 < found.per_gpu.high
