"""What holds of every way to divide a run: more to do never takes less, more GPUs never more, offload never more."""

from __future__ import annotations

import copy

from hypothesis import given, settings
from hypothesis import strategies as st

from gpulint.estimator.estimate_job import estimate_job
from gpulint.estimator.sharding.strategy import sharded_state
from gpulint.estimator.states.stage import pipeline
from gpulint.job.job import (
    Adapter,
    Fsdp,
    FsdpMixedPrecision,
    Hardware,
    Job,
    Offload,
    Optimizer,
    Parallelism,
    Precision,
    Weights,
    Zero,
)

POLICY = FsdpMixedPrecision("bfloat16", "float32")
PLANS = {
    "ddp": {},
    "zero1": {"zero": Zero(1)},
    "zero2": {"zero": Zero(2)},
    "zero3": {"zero": Zero(3)},
    "megatron": {"zero": Zero(1, library="megatron")},
    "fsdp1": {"fsdp": Fsdp(wrap="transformer")},
    "fsdp1 mixed": {"fsdp": Fsdp(wrap="transformer", wrap_adapters=False)},
    "fsdp1 zero2": {"fsdp": Fsdp(wrap="transformer", sharding="shard_grad_op")},
    "fsdp2": {"fsdp": Fsdp(version=2, wrap="transformer", mixed_precision=POLICY, upcast_trainable=True)},
    "fsdp2 apart": {"fsdp": Fsdp(version=2, wrap="transformer", outer="separate")},
    "fsdp2 int": {"fsdp": Fsdp(version=2, wrap="transformer", reshard_after_forward=2)},
    "fsdp2 unwrapped": {"fsdp": Fsdp(version=2)},
    "tensor": {"tensor": 2, "sequence": True},
    "pipeline": {"pipeline": 2, "zero": Zero(1)},
    "interleaved": {"pipeline": 2, "virtual_stages": 2},
    "gpipe": {"pipeline": 2, "pipeline_schedule": "gpipe"},
    "dualpipe": {"pipeline": 2, "pipeline_schedule": "dualpipe"},
}

plans = st.sampled_from(sorted(PLANS))
steps = st.sampled_from([1, 2, 4])
methods = st.sampled_from(["full", "lora"])


def run(plan, method="full", micro_steps=1, batch=1, length=64, gpus=8, **changes):
    job = Job(
        model="test",
        weights=Weights("bfloat16"),
        method=method,
        adapter=Adapter(r=4, targets=["q_proj", "v_proj"]) if method == "lora" else None,
        precision=Precision(master_weights="zero" in PLANS[plan]),
        optimizer=Optimizer("adamw_torch_fused"),
        micro_batch_size=batch,
        sequence_length=length,
        gradient_accumulation_steps=micro_steps,
        hardware=Hardware(gpus=gpus),
        parallelism=Parallelism(**copy.deepcopy(PLANS[plan])),
    )
    return job.with_changes(changes) if changes else job


def allocated(model, *args, **kwargs):
    return estimate_job(run(*args, **kwargs), model, None).per_gpu.allocated


@settings(max_examples=40)
@given(plan=plans, method=methods, micro_steps=steps, length=st.sampled_from([32, 64, 128]))
def test_more_tokens_never_take_less(tiny, plan, method, micro_steps, length):
    once = allocated(tiny, plan, method, micro_steps, 1, length)
    assert once <= allocated(tiny, plan, method, micro_steps, 2, length)
    assert once <= allocated(tiny, plan, method, micro_steps, 1, 2 * length)


@settings(max_examples=40)
@given(plan=plans, method=methods, micro_steps=steps, gpus=st.sampled_from([2, 4, 8]))
def test_more_gpus_never_keep_more_states(tiny, plan, method, micro_steps, gpus):
    def states(count):
        stage = pipeline(run(plan, method, micro_steps, gpus=count), tiny)[0]
        built = sharded_state(stage.job, stage.own)
        return built.weights + built.adapter + built.optimizer + built.gradients

    assert states(2 * gpus) <= states(gpus) + 400 * 512


@settings(max_examples=30)
@given(plan=st.sampled_from(["fsdp1", "fsdp2", "zero1", "zero2", "zero3"]), method=methods, micro_steps=steps)
def test_offload_never_takes_more_states_of_a_gpu_and_no_less_of_the_host(tiny, plan, method, micro_steps):
    field = (
        {"parallelism.fsdp.offload": True}
        if plan.startswith("fsdp")
        else {"parallelism.zero.offload_optimizer": Offload("cpu")}
    )
    here = estimate_job(run(plan, method, micro_steps), tiny, None)
    away = estimate_job(run(plan, method, micro_steps, **field), tiny, None)
    for name in ("weights", "adapter", "optimizer"):
        assert away.components[name] <= here.components[name]
    assert away.host >= here.host
    assert away.host_memory.train >= here.host_memory.train


@settings(max_examples=30)
@given(micro_steps=steps, schedule=st.sampled_from(["1f1b", "gpipe", "zero_bubble"]), stages=st.sampled_from([1, 2]))
def test_more_stages_never_hold_more_weights(tiny, micro_steps, schedule, stages):
    def weights(count):
        changes = {"parallelism.pipeline": count, "parallelism.pipeline_schedule": schedule}
        return max(
            sharded_state(s.job, s.own).weights for s in pipeline(run("ddp", "full", micro_steps, **changes), tiny)
        )

    assert weights(2 * stages) <= weights(stages)
