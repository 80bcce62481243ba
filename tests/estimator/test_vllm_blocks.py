"""What torch's allocator adds to the weights of a vLLM engine."""

from __future__ import annotations

import pytest

from gpulint.estimator.allocator.allocator import Policy
from gpulint.estimator.inference import estimate_inference
from gpulint.estimator.serving.vllm_blocks import block_rounding, offloaded
from gpulint.estimator.states.parameter import Parameter
from gpulint.job import Job
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
