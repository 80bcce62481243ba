"""What torch's allocator adds to the weights of a vLLM engine."""

from __future__ import annotations

import pytest

from gpulint.estimator.allocator.allocator import Policy
from gpulint.estimator.estimate_job import estimate_inference
from gpulint.estimator.serving.vllm.blocks import block_rounding, offloaded, offloaded_layers
from gpulint.estimator.states.parameter import Parameter
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.models.resolve import resolve
from gpulint.units import GIB, MIB


def tensor(role: str, *pieces: int, copies: int = 1, layers: tuple[int, ...] | None = None) -> Parameter:
    return Parameter(role, (1,), copies, layers, role, "bfloat16", pieces)


@pytest.mark.parametrize(
    ("mib", "added"),
    [(32.0, 0.0), (31.5, 0.5), (31.0, 1.0), (30.5, 0.0)],
)
def test_the_end_of_a_segment_is_the_tensors_when_no_more_than_a_mebibyte(mib, added):
    assert block_rounding([tensor("head", round(mib * MIB))], Policy()) == added * MIB


def test_an_expandable_segment_has_no_end():
    assert block_rounding([tensor("head", 31 * MIB)], Policy(expandable=True)) == 0


def test_merged_projections_are_one_tensor_a_layer():
    """Three of 12.5 MiB end 1.5 MiB before their segments, which is split off; one of 37.5 MiB ends half a one."""
    layers = tuple(range(4))
    apart = [tensor(role, 25 * MIB // 2, copies=4, layers=layers) for role in ("vision", "other", "o")]
    merged = [tensor(role, 25 * MIB // 2, copies=4, layers=layers) for role in ("q", "k", "v")]
    assert block_rounding(apart, Policy()) == 0
    assert block_rounding(merged, Policy()) == 4 * MIB // 2


@pytest.mark.parametrize(
    ("model", "tensor", "logged"),
    [
        ("Qwen/Qwen2-7B-Instruct", 1, 14.2488),
        ("Qwen/Qwen2-7B-Instruct", 2, 7.1217),
        ("meta-llama/Llama-3.2-3B-Instruct", 1, 6.0160),
        ("Qwen/Qwen2.5-1.5B-Instruct", 1, 2.89),
        ("Qwen/Qwen3-0.6B", 1, 1.12),
    ],
)
def test_loaded_models_take_what_logs_say(model, tensor, logged):
    """`Model loading took ... GiB` of published logs (benchmarks/accuracy/fresh.json names them)."""
    job = Job.validate(
        {"kind": "inference", "model": model, "weights": {"dtype": "bfloat16"},
         "inference": {"engine": "vllm", "version": "0.10.1.1"}, "parallelism": {"tensor": tensor}}
    )  # fmt: skip
    load = estimate_inference(job, resolve(model), None).phases[0]
    assert load.allocated / GIB == pytest.approx(logged, abs=0.0051)


def test_whole_tensors_of_the_layers_go_to_main_memory_in_order():
    """Llama-3.1-8B with cpu_offload_gb 12 keeps 2.91 GiB, Qwen2.5-7B 2.17 (TheBuccaneer/vllm-offload-profiles)."""
    layers = tuple(range(4))
    found = [tensor("embedding", 64 * MIB), tensor("o", 3 * MIB, copies=4, layers=layers)]
    assert [offloaded(found, limit * MIB) // MIB for limit in (0, 1, 3, 4, 100)] == [0, 3, 3, 6, 12]
    for model, logged in (("meta-llama/Llama-3.1-8B-Instruct", 2.91), ("Qwen/Qwen2.5-7B-Instruct", 2.17)):
        fields = {"engine": "vllm", "version": "0.17.1", "cpu_offload_gb": 12}
        job = Job.validate({"kind": "inference", "model": model, "inference": fields})
        load = estimate_inference(job, resolve(model), None).phases[0]
        assert load.allocated / GIB == pytest.approx(logged, abs=0.0051)


def test_layers_go_one_after_the_other_and_the_first_may_be_another_kind():
    """A dense layer of 2 + 9 MiB comes before two of 2 + 5."""
    found = [
        tensor("o", 2 * MIB, copies=3, layers=(0, 1, 2)),
        tensor("down", 9 * MIB, copies=1, layers=(0,)),
        tensor("expert_down", 5 * MIB, copies=2, layers=(1, 2)),
    ]
    moved = [offloaded_layers(found, limit * MIB) for limit in (0, 1, 11, 12, 18, 100)]
    assert moved == [(layers, most * MIB) for layers, most in ((0, 0), (1, 2), (1, 11), (2, 11), (2, 11), (3, 11))]
    assert [offloaded(found, limit * MIB) // MIB for limit in (1, 3, 12, 14)] == [2, 11, 13, 18]


def test_an_engine_that_copies_what_was_moved_starts_with_what_its_log_says():
    """vllm 0.7.2 on an L40S, DeepSeek-Coder-V2-Lite: 0.8008 GB of weights, 14.96 GiB of cache (vllm issue 15196)."""
    model = "deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct"
    fields = {"engine": "vllm", "max_model_len": 100_000, "max_num_batched_tokens": 40_000, "cpu_offload_gb": 30}
    fields |= {"gpu_memory_utilization": 0.45, "enforce_eager": True}

    def found(version):
        plan = {"kind": "inference", "model": model, "hardware": {"gpu": "l40s", "gpus": 1}}
        job = Job.validate({**plan, "inference": {**fields, "version": version}})
        return estimate_inference(job, resolve(model), find("l40s"))

    copies, views = found("0.7.2"), found("0.8.5")
    assert copies.phases[0].allocated / GIB == pytest.approx(0.8008, abs=0.0006)
    assert copies.kv_cache.tokens == pytest.approx(464880, rel=0.01)
    assert copies.kv_cache.low <= 464880 <= copies.kv_cache.high
    assert views.phases[0].allocated == copies.phases[0].allocated
