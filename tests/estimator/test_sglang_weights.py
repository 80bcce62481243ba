"""What SGLang holds for a checkpoint's weights beside its files, against a log."""

from __future__ import annotations

import pytest

from gpulint.estimator.estimate_job import estimate_inference
from gpulint.estimator.serving.kv_cache import lenders
from gpulint.estimator.serving.sglang.cache import added, token_bytes
from gpulint.estimator.serving.sglang.profile import profile
from gpulint.estimator.serving.vllm.weights import fused_keys
from gpulint.estimator.states.parameters import parameters
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.models.resolve import resolve
from gpulint.units import GIB

PRO = "deepseek-ai/DeepSeek-V4-Pro"


def job(model=PRO, **fields) -> Job:
    return Job.validate(
        {
            "kind": "inference",
            "model": model,
            "parallelism": {"tensor": 8},
            "hardware": {"gpu": "h200-141gb", "gpus": 8},
            "inference": {"engine": "sglang", **fields},
        }
    )


def test_deepseek_v4_pro_leaves_no_room_on_eight_h200():
    """125.65 GB loaded, and refused with a share of 0.88 (SemiAnalysisAI/InferenceX issue 2128)."""
    plan = job(gpu_memory_utilization=0.88)
    found = estimate_inference(plan, resolve(PRO), find("h200-141gb"))
    assert found.phases[0].components["weights"] / GIB == pytest.approx(125.65, rel=0.01)
    assert found.verdict == "tight"
    assert found.refusal is not None


def test_scales_of_four_bytes_are_marlin_s_before_blackwell():
    model, plan = resolve(PRO), job()
    items = parameters(plan, model)
    experts = sum(item.elements for item in items if item.role.startswith("expert_"))
    assert added(model, items, find("h200-141gb")).scales == experts // 32 * 4
    assert added(model, items, find("b200")).scales == 0
    assert added(model, items, find("h200-141gb")).sure > added(model, items, find("b200")).sure > 0


def test_other_models_are_held_as_they_are_stored():
    model = resolve("deepseek-ai/DeepSeek-V3.2")
    assert added(model, parameters(job("deepseek-ai/DeepSeek-V3.2"), model), find("h200-141gb")) == (0, 0)


def test_layers_that_read_another_s_cache_have_keys_and_values_of_their_own():
    """Gemma-4-E4B on a DGX Spark: 79.94 GiB hold 997,846 tokens, and 798,276 of the sliding layers."""
    model, plan = resolve("google/gemma-4-E4B-it"), job("google/gemma-4-E4B-it")
    plan.parallelism.tensor = 1
    size = token_bytes(plan, model, None, profile("0.5.19"))
    assert size * 997_846 / GIB == pytest.approx(79.94, abs=0.02)
    assert lenders(model) == {layer: 23 if layer in (29, 35, 41) else 22 for layer in range(24, 42)}
    assert added(model, parameters(plan, model), None).sure == 2 * 2560 * (15 * 1024 + 3 * 2048)


def test_layers_whose_values_are_their_keys_hold_them_twice():
    model, plan = resolve("google/gemma-4-31B-it"), job("google/gemma-4-31B-it")
    plan.parallelism.tensor = 1
    assert fused_keys(model, parameters(plan, model)) == 10 * 2 * 2048 * 5376
    plan.parallelism.pipeline = 2
    assert fused_keys(model, parameters(plan, model)) == 5 * 2 * 2048 * 5376


def test_gemma_3n_reads_the_last_caches_of_its_first_twenty_layers():
    read = lenders(resolve("google/gemma-3n-E2B-it"))
    assert set(read) == set(range(20, 30))
    assert set(read.values()) == {18, 19}
    assert lenders(resolve("Qwen/Qwen3-Next-80B-A3B-Instruct")) == {}
