"""Encoders that vLLM does not load for a job that takes text alone."""

from __future__ import annotations

import pytest

from gpulint.estimator.estimate_job import estimate_inference
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.models.resolve import resolve


def estimate(name, off=None, version=None):
    job = Job.validate(
        {
            "kind": "inference",
            "inference": {"engine": "vllm", "max_model_len": 4096, "version": version, "modalities_off": off},
        }
    )
    return estimate_inference(job, resolve(name), find("h100-80gb"))


def weights(found):
    return found.phases[0].components["weights"]


@pytest.mark.parametrize(
    ("version", "off", "left_out"),
    [
        ("0.20.0", ["image", "video"], True), (None, ["image", "video", "audio"], True), ("0.20.0", None, False),
        ("0.14.0", ["image", "video"], False), ("0.20.0", ["video"], False), ("0.20.0", ["image"], False),
    ],
)  # fmt: skip
def test_the_vision_tower_is_left_out_when_images_and_videos_are_off(version, off, left_out):
    model = resolve("Qwen/Qwen3.6-27B")
    tower = sum(2 * item.elements for item in model.tensors if item.role in ("vision", "projector"))
    less = weights(estimate(model.id, version=version)) - weights(estimate(model.id, off, version))
    assert less == (pytest.approx(tower, rel=2e-2) if left_out else 0)


def test_a_tower_that_reads_images_alone_is_left_out_without_them():
    assert weights(estimate("google/gemma-3-27b-it", ["image"])) < weights(estimate("google/gemma-3-27b-it"))


def test_an_encoder_that_does_not_run_leaves_the_interval():
    found, text = estimate("google/gemma-4-31B-it"), estimate("google/gemma-4-31B-it", ["image", "video"])
    assert text.kv_cache.tokens - text.kv_cache.low < found.kv_cache.tokens - found.kv_cache.low
    assert any("encoder" in item.origin for item in found.assumptions)
    assert not any("encoder" in item.origin for item in text.assumptions)
