"""TGI, TensorRT-LLM and LMDeploy: a share of what is left for the KV cache."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulint.estimator.inference import estimate_inference
from gpulint.estimator.pools import engine_name
from gpulint.hardware.catalogue import find
from gpulint.job import Job
from gpulint.models.resolve import resolve

from .llama import LLAMA_8B

WEIGHTS = 2 * 8_030_261_248
TOKEN = 131_072
ENGINES = st.sampled_from(["tgi", "tensorrt-llm", "lmdeploy"])


def estimate(engine, gpu="h100-80gb", **fields):
    plan = Job.validate({"kind": "inference", "inference": {"engine": engine, **fields}})
    return estimate_inference(plan, resolve(LLAMA_8B), find(gpu) if gpu else None)


def outside(found):
    return found.runtime + found.components["weights"] + found.components["buffers"]


def test_lmdeploy_takes_four_fifths_of_what_the_weights_leave():
    found = estimate("lmdeploy")
    left = find("h100-80gb").usable - outside(found)
    assert found.components["weights"] == WEIGHTS
    assert found.components["kv_cache"] == pytest.approx(0.8 * left, abs=64 * TOKEN)
    assert found.components["kv_cache"] % (64 * TOKEN) == 0


def test_tgi_leaves_a_tenth_of_the_card():
    found = estimate("tgi")
    step = found.components["activations"] + found.components["logits"]
    assert found.components["kv_cache"] == pytest.approx(
        0.9 * find("h100-80gb").usable - outside(found) - step, abs=TOKEN
    )
    assert found.verdict == "fits"


def test_tensorrt_llm_takes_nine_tenths_of_what_a_run_leaves():
    found = estimate("tensorrt-llm", max_num_seqs=256)
    step = found.components["activations"] + found.components["logits"]
    left = find("h100-80gb").usable - outside(found) - step
    assert found.components["logits"] == 6 * 256 * 128256
    assert found.components["kv_cache"] == pytest.approx(0.9 * left, abs=32 * TOKEN)


def test_a_stated_share_wins():
    small, large = (estimate("lmdeploy", gpu_memory_utilization=share).kv_cache.tokens for share in (0.2, 0.4))
    assert large == pytest.approx(2 * small, abs=64)


@pytest.mark.parametrize("engine", ["tgi", "tensorrt-llm", "lmdeploy"])
def test_weights_beyond_the_card_are_refused(engine):
    found = estimate(engine, gpu="t4")
    assert found.verdict == "exceeds"
    assert "nothing is left" in found.refusal


def test_tgi_refuses_a_cache_smaller_than_one_prefill_step():
    found = estimate("tgi", gpu="rtx-4090", max_num_batched_tokens=65536)
    assert found.verdict == "exceeds"
    found = estimate("tgi", gpu="rtx-4090", max_num_batched_tokens=30000)
    assert found.refusal.startswith("the KV cache")


def test_after_a_refusal_the_estimate_holds_the_cache_that_was_missing():
    """One prefill step, not a request of the longest length."""
    found = estimate("tgi", gpu="rtx-4090", max_num_batched_tokens=30000)
    assert found.components["kv_cache"] == 30000 * TOKEN


def test_names_of_engines_have_their_spellings():
    assert engine_name("TRTLLM") == engine_name("tensorrt_llm") == "tensorrt-llm"
    assert engine_name("text-generation-inference") == "tgi"
    assert engine_name("llama.cpp") is None


@given(ENGINES, st.integers(256, 8192), st.integers(256, 8192))
def test_larger_steps_never_leave_more_tokens(engine, few, more):
    found = [estimate(engine, max_num_batched_tokens=size).kv_cache.tokens for size in sorted((few, more))]
    assert found[1] <= found[0]
