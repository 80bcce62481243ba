"""Pooling models in vLLM: no sampler runs, and no head is loaded."""

from __future__ import annotations

import pytest

from gpulint.estimator.estimate_job import estimate_inference
from gpulint.estimator.serving.vllm.settings import pools
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.models.resolve import resolve
from gpulint.units import GIB

EMBEDDING, GENERATING = "Qwen/Qwen3-Embedding-8B", "Qwen/Qwen3-8B"


def server(**fields):
    given = {"engine": "vllm", "version": "0.12.0", "max_model_len": 8192, **fields}
    return Job.validate({"kind": "inference", "inference": given})


@pytest.mark.parametrize(
    ("model", "asked", "expected"),
    [(EMBEDDING, None, True), (EMBEDDING, False, False), (GENERATING, None, False), (GENERATING, True, True)],
)
def test_a_checkpoint_without_a_head_is_pooled_unless_told_otherwise(model, asked, expected):
    assert pools(server(pooling=asked), resolve(model)) is expected


def test_the_cache_gets_what_the_sampler_would_take():
    """Qwen3-Embedding-8B on an H100 with 0.12.0: 56.24 GiB for the cache, 409,504 tokens."""
    found = estimate_inference(server(), resolve(EMBEDDING), find("h100-80gb"))
    assert found.kv_cache.low <= 409_504 <= found.kv_cache.high
    assert found.peak.components["logits"] == 0


def test_a_generating_checkpoint_that_pools_has_no_head():
    model = resolve(GENERATING)
    card = find("h100-80gb")
    plain, pooled = (estimate_inference(server(pooling=asked), model, card) for asked in (None, True))
    head = 2 * model.shape.vocabulary * model.shape.hidden
    assert plain.components["weights"] - pooled.components["weights"] == pytest.approx(head, rel=1e-3)
    assert plain.peak.components["logits"] > 4 * GIB > pooled.peak.components["logits"] == 0
