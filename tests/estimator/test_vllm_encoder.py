"""The vision tower's part of vLLM's profile run, against the shapes of its source and published starts."""

from __future__ import annotations

import pytest

from gpulint.estimator.estimate_job import estimate_inference
from gpulint.estimator.serving.vllm.encoder import attention, encoder, feed_forward
from gpulint.estimator.serving.vllm.items import items, requests_profiled
from gpulint.estimator.serving.vllm.settings import settings
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.models.resolve import resolve
from gpulint.units import GIB


def job(version, tensor=1, pixels=None, images=None, **inference):
    return Job.validate(
        {
            "kind": "inference",
            "inference": {"engine": "vllm", "version": version, **inference},
            "parallelism": {"tensor": tensor},
            "images": images,
            "image_pixels": pixels,
        }
    )


def given(name, version, gpu="a100-80gb", **fields):
    model = resolve(name)
    return items(model, settings(job(version, **fields), model, find(gpu)))


@pytest.mark.parametrize(
    ("name", "version", "fields", "tokens", "budget"),
    [
        ("Qwen/Qwen3.5-9B", "0.20.0", {}, 16384, 16384),
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", "0.11.0", {}, 12288, 153600),
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", "0.14.0", {}, 16384, 16384),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "0.23.0", {}, 7 * 16384, 7 * 16384),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "0.23.0", {"max_model_len": 8192}, 16384, 16384),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "0.23.0", {"modalities_off": ["video"]}, 16384, 16384),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "0.8.5", {"max_num_batched_tokens": 2048}, 16384, 6 * 16384),
        ("Qwen/Qwen3.5-9B", "0.20.0", {"max_num_batched_tokens": 32768, "max_model_len": 65536}, 2 * 16384, 32768),
        ("Qwen/Qwen3.5-9B", "0.20.0", {"pixels": 1024 * 1024, "modalities_off": ["video"]}, 2 * 1024, 2048),
        (
            "Qwen/Qwen2-VL-2B-Instruct", "0.28.0",
            {"pixels": 262144, "images": 1, "modalities_off": ["video"], "max_num_seqs": 1}, 334, 2048,
        ),
    ],
)  # fmt: skip
def test_the_largest_items_go_through_the_tower(name, version, fields, tokens, budget):
    found = given(name, version, **fields)
    assert (found.tokens, found.patches, found.budget) == (tokens, 4 * tokens, budget)


@pytest.mark.parametrize(
    ("name", "version", "gpu", "fields"),
    [
        ("Qwen/Qwen3-8B", "0.20.0", "a100-80gb", {}),
        ("google/gemma-3-27b-it", "0.20.0", "a100-80gb", {}),
        ("Qwen/Qwen3.5-9B", "0.20.0", "a100-80gb", {"modalities_off": ["image", "video"]}),
        ("Qwen/Qwen3.5-9B", "0.20.0", "a100-80gb", {"skip_mm_profiling": True}),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "0.7.3", "a100-80gb", {}),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "0.9.2", "t4", {}),
    ],
)  # fmt: skip
def test_no_item_where_no_known_tower_runs(name, version, gpu, fields):
    assert given(name, version, gpu, **fields) is None


def widest(instants, tensor=1) -> float:
    """In units of H, where I is twice as much."""
    return max(copies.size(1.0, 2.0, tensor) for copies in instants)


def test_a_rank_holds_its_share_of_attention_and_all_of_the_states():
    one, four = (widest(attention("qwen3_5", ranks, "0.24.0"), ranks) for ranks in (1, 4))
    assert (one, four) == (12.0, 7.0)
    assert widest(attention("qwen2_5_vl", 1, "0.24.0")) == 11.0


def test_rotations_in_float32_take_more_than_those_of_later_releases():
    releases = ("0.8.5", "0.9.2", "0.12.0", "0.14.0", "0.15.1")
    sizes = [widest(attention("qwen2_5_vl", 1, version)) for version in releases]
    assert sizes == [16.0, 13.0, 15.0, 9.0, 11.0]


def test_an_eager_run_adds_the_residual_in_place():
    compiled, eager = (widest(feed_forward("qwen2_5_vl", 1, "0.23.0", eager=eager)) for eager in (False, True))
    assert compiled - eager == 2.0


def test_what_went_in_and_what_came_out_stays_beside_the_text_model():
    model = resolve("Qwen/Qwen3.5-9B")
    found = encoder(model, settings(job("0.20.0"), model, find("rtx-5090")), 2.0, 1)
    assert found.kept == 65536 * 3 * 2 * 16 * 16 * 2 + 16384 * 4096 * 2
    assert found.kept < found.peak < found.high


def test_a_published_refusal_falls_short_by_as_much():
    """vLLM 0.23.0 on an A100: «Available KV cache memory: -14.28 GiB» with weights of 15.67 and graphs of 0.53 GiB."""
    found = estimate_inference(
        job("0.23.0", gpu_memory_utilization=0.22), resolve("Qwen/Qwen2.5-VL-7B-Instruct"), find("a100-80gb")
    )
    run = next(phase for phase in found.phases if phase.name == "profile_run").components
    assert found.verdict == "exceeds"
    assert run["activations"] / GIB == pytest.approx(0.22 * 79.25 - 15.67 - 0.53 + 14.28, abs=0.2)


def test_the_interval_holds_a_published_pool_where_the_outputs_fill_the_budget():
    """vLLM 0.11.0 on four RTX 3090: «profiled with 1 video items», 100,752 tokens."""
    given = job("0.11.0", tensor=4, gpu_memory_utilization=0.9, max_model_len=65536).with_changes({"hardware.gpus": 4})
    model = resolve("Qwen/Qwen3-VL-30B-A3B-Instruct")
    found = estimate_inference(given, model, find("rtx-3090")).kv_cache
    assert found.low <= 100752 <= found.high
    kept = encoder(model, settings(given, model, find("rtx-3090")), 2.0, 4).kept
    assert kept > 153600 * 4 * 2048 * 2


@pytest.mark.parametrize(
    ("name", "version", "fields", "requests"),
    [
        ("Qwen/Qwen2-VL-7B-Instruct", "0.6.6", {"max_model_len": 8192}, 1),
        ("Qwen/Qwen2-VL-7B-Instruct", "0.6.6", {"max_model_len": 65536, "max_num_batched_tokens": 65536}, 4),
        ("Qwen/Qwen2-VL-7B-Instruct", "0.6.6", {"max_model_len": 8192, "modalities_off": ["image", "video"]}, 256),
        ("Qwen/Qwen2-VL-7B-Instruct", "0.8.0", {"max_model_len": 8192, "max_num_seqs": 128}, 128),
        ("Qwen/Qwen2-7B-Instruct", "0.6.6", {"max_model_len": 8192}, 256),
    ],
)
def test_before_0_8_the_run_has_no_more_requests_than_items_have_room(name, version, fields, requests):
    model = resolve(name)
    assert requests_profiled(model, settings(job(version, **fields), model, find("a100-80gb"))) == requests
