"""TGI, TensorRT-LLM and LMDeploy: a share of what is left for the KV cache."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulint.estimator.estimate_job import estimate_inference
from gpulint.estimator.serving.pools.pool import engine_name
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
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


def serve(version, model, gpu, tensor, **fields):
    plan = Job.validate(
        {
            "kind": "inference",
            "parallelism": {"tensor": tensor},
            "hardware": {"gpus": tensor},
            "inference": {"engine": "tgi", "version": version, **fields},
        }
    )
    return estimate_inference(plan, resolve(model), find(gpu))


@pytest.mark.parametrize(("version", "copies"), [("2.3.1", 3.5), ("2.4.1", 2.5), ("3.3.7", None)])
def test_tgi_asked_its_warm_up_for_the_logits_of_all_prompt_tokens(version, copies):
    """3.93 GiB a copy for 16,450 tokens of a Llama 3.1 (huggingface/text-generation-inference issue 2301)."""
    model = "meta-llama/Llama-3.1-70B-Instruct"
    logits = serve(version, model, "a100-80gb", 2, max_num_batched_tokens=16450).components["logits"]
    one = 2 * 16450 * 128256
    assert one / 2**30 == pytest.approx(3.93, abs=0.005)
    assert logits == (pytest.approx(copies * one) if copies else 6 * 128256)


def test_tgi_2_shared_out_what_the_warm_up_left_and_added_its_cache():
    """30,816 tokens on two A100 80 GB with 10,049 of prefill (issue 2744); Command R+ on eight A30 ran out (1769)."""
    fields = {"gpu_memory_utilization": 0.9, "max_num_batched_tokens": 10049}
    found = serve("2.4.0", "meta-llama/Llama-3.1-70B-Instruct", "a100-80gb", 2, **fields)
    assert found.kv_cache.low <= 30_816 <= found.kv_cache.high
    step = found.components["activations"] + found.components["logits"]
    own = 10049 * found.kv_cache.bytes_per_token
    left = find("a100-80gb").usable - outside(found) - step - own
    assert found.components["kv_cache"] == pytest.approx(0.9 * left + own, abs=200_000)
    model = "CohereForAI/c4ai-command-r-plus"
    fields = {"gpu_memory_utilization": 0.94, "max_num_batched_tokens": 10000}
    assert serve("2.0.1", model, "a30", 8, **fields).verdict == "exceeds"


@pytest.mark.parametrize("engine", ["tgi", "tensorrt-llm", "lmdeploy"])
def test_the_cache_has_an_interval(engine):
    found = estimate(engine).kv_cache
    assert found.low < found.tokens < found.high


@pytest.mark.parametrize(("engine", "most"), [("lmdeploy", 100_000), ("tensorrt-llm", 1000)])
def test_a_stated_number_of_tokens_is_cut_to_whole_blocks_in_the_interval_too(engine, most):
    found = estimate(engine, max_total_tokens=most).kv_cache
    assert found.low <= found.tokens <= found.high <= most


def test_the_release_may_stand_among_the_versions():
    fields = {"kind": "inference", "inference": {"engine": "tgi"}}
    one = Job.validate({**fields, "versions": {"tgi": "2.0.1"}})
    other = Job.validate({"kind": "inference", "inference": {"engine": "tgi", "version": "2.0.1"}})
    card, model = find("h100-80gb"), resolve(LLAMA_8B)
    assert estimate_inference(one, model, card).components == estimate_inference(other, model, card).components
