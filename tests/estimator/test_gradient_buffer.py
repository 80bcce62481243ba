"""One gradient buffer: Megatron's distributed optimizer, DeepSpeed's BF16_Optimizer."""

from __future__ import annotations

import pytest

from gpulint.estimator.estimate_job import estimate_job
from gpulint.estimator.peak_candidate import PeakCandidate
from gpulint.estimator.sharding.strategy import sharded_state
from gpulint.job.job import Hardware, Job, Offload, Optimizer, Parallelism, Precision, Weights, Zero


def job(gpus=8, gradients="float32", **zero):
    return Job(
        model="test",
        weights=Weights("bfloat16"),
        precision=Precision(gradients=gradients, master_weights=True),
        optimizer=Optimizer("adamw_torch_fused"),
        hardware=Hardware(gpus=gpus),
        parallelism=Parallelism(zero=Zero(**zero)),
    )


def each(plan, model):
    return (plan.weights + plan.gradient_bytes(0) + plan.optimizer) / model.parameters


@pytest.mark.parametrize(
    ("gradients", "stage", "expected"),
    [("float32", 1, 2 + 4 + 12 / 8), ("bfloat16", 1, 2 + 2 + 12 / 8), ("float32", 0, 2 + 4 + 12)],
)
def test_megatron_s_theoretical_bytes_a_parameter(llama_8b, gradients, stage, expected):
    """6 + 12/d B with the distributed optimizer, 18 B without (Megatron-LM docs, distributed optimizer)."""
    plan = sharded_state(job(gradients=gradients, stage=stage, library="megatron"), llama_8b)
    assert each(plan, llama_8b) == pytest.approx(expected, rel=1e-4)
    assert plan.in_step == plan.all_gradients
    assert plan.step_buffers == []
    assert plan.buffer_bytes(PeakCandidate("backward", 0, 0, plan.trainable, 0)) == 0


@pytest.mark.parametrize(
    ("stage", "version", "steps", "before", "after"),
    [
        (0, None, 1, 6, 6),
        (1, None, 1, 4, 6),
        (1, None, 4, 6, 6),
        (1, "0.16.5", 1, 4, 6),
        (1, "0.16.4", 1, 6, 6),
    ],
)
def test_deepspeed_keeps_16_bit_gradients_beside_the_float32_ones(llama_8b, stage, version, steps, before, after):
    """The states are divided at stage 0 too; a step at stage 1 frees the 16-bit gradients from 0.16.5 on."""
    given = job(stage=stage)
    given.gradient_accumulation_steps = steps
    given.versions = {"deepspeed": version} if version else {}
    plan = sharded_state(given, llama_8b)
    assert plan.optimizer / llama_8b.parameters == pytest.approx(12 / 8, rel=1e-4)
    held = [plan.gradient_bytes(done) / llama_8b.parameters for done in (0, plan.trainable)]
    assert held == [pytest.approx(size, rel=1e-4) for size in (before, after)]
    assert plan.buffers == 0
    assert plan.gradients == plan.gradient_bytes(plan.trainable)


@pytest.mark.parametrize(("version", "each_byte"), [(None, 4), ("0.19.8", 4), ("0.19.7", 6)])
def test_immediate_gradients_are_freed_by_the_release_that_began_to(llama_8b, version, each_byte):
    given = job(stage=1, immediate_gradients=True)
    given.versions = {"deepspeed": version} if version else {}
    plan = sharded_state(given, llama_8b)
    assert plan.gradient_bytes(plan.trainable) / llama_8b.parameters == pytest.approx(each_byte, rel=1e-4)
    assert plan.buffer_bytes(PeakCandidate("loss", 0, 0, 0, None)) == (2 * 128256 * 4096 if each_byte == 4 else 0)


def test_offload_keeps_zero_s_own_optimizer(llama_8b):
    plan = sharded_state(job(stage=1, offload_optimizer=Offload("cpu")), llama_8b)
    assert plan.buffers == 4 * 128256 * 4096
    assert plan.optimizer == 0


@pytest.mark.parametrize("ratio", [0.0, 0.4, 1.0])
def test_a_share_of_masters_and_states_goes_to_main_memory(llama_8b, ratio):
    """Megatron's optimizer_offload_fraction; weights and gradients stay."""
    whole = sharded_state(job(stage=1, library="megatron"), llama_8b)
    plan = sharded_state(job(stage=1, library="megatron", offload_optimizer=Offload("cpu", ratio=ratio)), llama_8b)
    assert plan.optimizer == pytest.approx((1 - ratio) * whole.optimizer, rel=1e-6)
    assert plan.host == pytest.approx(ratio * 12 * llama_8b.parameters, rel=1e-3)
    assert plan.weights == whole.weights


def test_moments_in_16_bits(llama_8b):
    """The precision-aware optimizer: 4 B of master and 2 x 2 B of moments a parameter."""
    given = job(stage=1, library="megatron")
    given.optimizer.state_dtype = "bfloat16"
    assert each(sharded_state(given, llama_8b), llama_8b) == pytest.approx(2 + 4 + 8 / 8, rel=1e-4)


def test_each_replica_of_the_optimizer_holds_the_divided_states(llama_8b):
    """Megatron's num_distributed_optimizer_instances: two groups of four ranks divide as four ranks do."""
    twice = sharded_state(job(stage=1, library="megatron", replicas=2), llama_8b)
    assert twice.optimizer == sharded_state(job(gpus=4, stage=1, library="megatron"), llama_8b).optimizer


def test_the_buffer_is_there_in_an_evaluation(llama_8b):
    plan = job(stage=1, library="megatron").with_changes(
        {"micro_batch_size": 1, "sequence_length": 512, "evaluation.micro_batch_size": 1}
    )
    found = next(phase for phase in estimate_job(plan, llama_8b, None).phases if phase.name == "evaluation")
    assert found.components["gradients"] == sharded_state(plan, llama_8b).gradients > 0
