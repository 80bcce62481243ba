"""What the profile run of vLLM 0.2.5 to 0.6.3 reserves, which counts by the driver; against logs of those releases."""

from __future__ import annotations

import pytest

from gpulint.estimator.estimate_job import estimate_inference
from gpulint.estimator.serving.vllm.rank_memory import rank_memory
from gpulint.estimator.serving.vllm.settings import settings
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.models.resolve import resolve


def job(model="meta-llama/Llama-2-70b-hf", gpu="a100-80gb", tensor=4, **fields) -> Job:
    return Job.validate(
        {
            "kind": "inference",
            "model": model,
            "parallelism": {"tensor": tensor},
            "hardware": {"gpu": gpu, "gpus": tensor},
            "inference": {"engine": "vllm", "max_model_len": 4096, **fields},
        }
    )


def unused(plan) -> int:
    model, gpu = resolve(plan.model), find(plan.hardware.gpu)
    chosen = settings(plan, model, gpu)
    assert chosen is not None
    return rank_memory(plan, model, gpu, chosen).unused_segments


@pytest.mark.parametrize(("version", "counts"), [("0.2.5", True), ("0.5.4", True), ("0.6.4", False), ("0.11.0", False)])
def test_free_segments_count_until_0_6_4(version, counts):
    assert (unused(job(version=version)) > 0) is counts


def test_sums_were_held_by_nccl_s_stream_in_0_2_5_alone():
    """2 of 79 layers, 4096 tokens of 8192 values of 2 bytes."""
    assert unused(job(version="0.2.5")) - unused(job(version="0.2.7")) == 2 * 79 * 4096 * 8192 * 2
    one = {"model": "meta-llama/Llama-2-7b-hf", "tensor": 1}
    assert unused(job(version="0.2.5", **one)) == unused(job(version="0.2.7", **one))


def test_blocks_of_llama_2_70b_are_those_of_a_log():
    """vLLM 0.2.5 on four A100 80 GB logged 20,865 blocks of 16 tokens (vllm-project/vllm pull 2031)."""
    plan = job(version="0.2.5")
    found = estimate_inference(plan, resolve(plan.model), find("a100-80gb")).kv_cache
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low <= 20_865 * 16 <= found.high


@pytest.mark.parametrize(("version", "chunk"), [("0.6.4", 512), ("0.6.5", 2048)])
def test_a_long_context_is_cut_into_the_chunks_of_its_release(version, chunk):
    plan = job("meta-llama/Llama-3.1-8B", tensor=1, version=version, max_model_len=65536)
    chosen = settings(plan, resolve(plan.model), find("a100-80gb"))
    assert chosen is not None
    assert chosen.max_num_batched_tokens == chunk
