"""What a first start of vLLM takes to compile the model, beside the profile run that it is part of."""

from __future__ import annotations

import pytest

from gpulint.estimator.estimate_job import estimate_inference
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.models.resolve import resolve
from gpulint.units import GIB

from .llama import LLAMA_8B

QWEN3_8B, QWEN2_5_7B = "Qwen/Qwen3-8B", "Qwen/Qwen2.5-7B-Instruct"


def estimate(model=QWEN3_8B, gpu="rtx-5090", version="0.24.0", tensor=1, **fields):
    job = Job.validate(
        {
            "kind": "inference",
            "model": model if isinstance(model, str) else None,
            "parallelism": {"tensor": tensor},
            "hardware": {"gpus": tensor},
            "inference": {"engine": "vllm", "version": version, "max_model_len": 32768, **fields},
        }
    )
    return estimate_inference(job, resolve(model), find(gpu))


def compiled(found):
    return next((phase.components["activations"] for phase in found.phases if phase.name == "compile"), 0)


def test_two_starts_of_one_file_differ_by_what_the_first_compiles():
    """An RTX 5090 with 0.24.0: 89,040 tokens, and 95,936 when the same command was started later that day."""
    cache = estimate(gpu_memory_utilization=0.92, flashinfer_sampler=False).kv_cache
    assert cache.tokens == pytest.approx(89_040, rel=0.01)
    assert cache.low <= 89_040 < 95_936 <= cache.high


def test_the_peak_of_a_first_start_is_a_copy_of_the_embedding():
    """An L4 with 0.28.0 logs 1.04 GiB of activations, where the layers' are 0.26 GiB."""
    phases = {phase.name: phase for phase in estimate("Qwen/Qwen2.5-7B-Instruct-AWQ", "l4", "0.28.0").phases}
    assert phases["compile"].components["activations"] / GIB == pytest.approx(1.04, abs=0.005)
    assert phases["compile"].components["activations"] == 2 * (152_064 * 3584 + 2 * 2048 * 3584)
    assert phases["profile_run"].components["activations"] / GIB == pytest.approx(0.26, abs=0.005)


@pytest.mark.parametrize(("version", "tries"), [("0.11.0", False), ("0.11.1", True), ("0.33.0", True)])
def test_inductor_tries_kernels_since_0_11_1(version, tries):
    assert bool(compiled(estimate(version=version))) is tries


def test_nothing_is_compiled_eagerly():
    eager, usual = estimate(enforce_eager=True), estimate()
    assert not compiled(eager)
    assert eager.kv_cache.tokens > usual.kv_cache.tokens
    assert not any("first start" in item.origin for item in eager.assumptions)
    assert any("first start" in item.origin for item in usual.assumptions)


def test_nothing_is_compiled_in_mode_0():
    graphs_alone = estimate(compiles=False)
    assert not compiled(graphs_alone)
    assert graphs_alone.components["buffers"] == estimate().components["buffers"]


def test_a_model_that_may_be_shown_pictures_is_given_embeddings():
    """A GH200 with 0.30.0, images and videos off: 26.84 GiB, as with the copy; its own peak leaves 28.3 GiB."""
    fields = {"gpu_memory_utilization": 0.85, "max_num_seqs": 64, "kv_cache_dtype": "fp8"}
    seeing = estimate("Qwen/Qwen3.6-27B", "gh200-96gb", "0.30.0", **fields)
    text = estimate("Qwen/Qwen3.6-27B", "gh200-96gb", "0.30.0", **fields, modalities_off=["image", "video"])
    assert not compiled(seeing)
    assert compiled(text)
    assert text.components["kv_cache"] / GIB == pytest.approx(26.84, rel=0.01)


def test_ranks_share_the_embedding_and_sum_before_the_norm():
    one, two = (compiled(estimate(tensor=tensor)) for tensor in (1, 2))
    table, states = 2 * 151_936 * 4096, 2 * 2048 * 4096
    assert (one, two) == (table + 2 * states, table // 2 + states)


def test_a_segment_that_cannot_be_given_back_counts_once_more():
    """An L4 with 0.27.1: 3.70 GiB, and 5.46 GiB with --enforce-eager, as if there were two copies."""
    between = estimate(QWEN2_5_7B, "l4", "0.27.1", max_model_len=4096).kv_cache
    before = estimate(QWEN2_5_7B, "l4", "0.26.0", max_model_len=4096).kv_cache
    assert before.low - between.low > 0.9 * GIB / between.bytes_per_token


def test_a_large_profile_run_covers_what_is_compiled():
    large = {**LLAMA_8B, "max_position_embeddings": 32768}
    first, second = (estimate(large, max_num_batched_tokens=tokens) for tokens in (2048, 32768))
    assert any("first start" in item.origin for item in first.assumptions)
    assert not any("first start" in item.origin for item in second.assumptions)


def test_a_refusal_names_what_took_the_room():
    """Said where compiling takes more than the run."""
    found = estimate(QWEN2_5_7B, "rtx-4060-ti-16gb", gpu_memory_utilization=0.9)
    assert found.refusal is not None
    assert "compiling" in found.refusal
