"""Pipeline stages as models of their own, and the micro batches that each has in flight."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulint.estimator.estimate import NotEstimable
from gpulint.estimator.estimate_job import estimate, estimate_job
from gpulint.estimator.states.stage import in_flight, kept_outputs, layer_counts, pipeline, stage
from gpulint.estimator.training import by_stage
from gpulint.job.job import Fsdp, FsdpMixedPrecision, Hardware, Job, Optimizer, Parallelism, Weights
from gpulint.units import GIB


def run(stages=4, micro=8, gpus=None, packing=False, **parallelism):
    return Job(
        packing=packing,
        model="test",
        weights=Weights("bfloat16"),
        optimizer=Optimizer("adamw_torch_fused"),
        micro_batch_size=1,
        sequence_length=512,
        gradient_accumulation_steps=micro,
        attention="flash_attention_2",
        hardware=Hardware(gpus=gpus or stages),
        parallelism=Parallelism(pipeline=stages, **parallelism),
    )


def test_without_pipelining_nothing_changes(llama_8b):
    job = Job()
    (only,) = pipeline(job, llama_8b)
    assert (only.job, only.own, only.held) == (job, llama_8b, 1.0)


def test_the_last_stage_has_its_layers_numbered_from_zero(decoder):
    model = decoder(layers=10, experts=4)
    plan = Parallelism(pipeline=4, tensor=2)
    last = stage(Job(parallelism=plan, hardware=Hardware(gpus=16)), model, 3)
    assert last.own.shape.layers == 3
    assert last.own.shape.sparse_layers == (0, 1, 2)
    assert len(last.own.shape.windows) == 3
    assert {tensor.layers for tensor in last.own.tensors} == {None, (0, 1, 2)}
    assert (last.job.parallelism.pipeline, last.job.parallelism.tensor, last.job.data_parallel) == (1, 2, 2)
    shared = stage(Job(parallelism=replace(plan, context=2), hardware=Hardware(gpus=32)), model, 3)
    assert (shared.job.parallelism.data, shared.job.data_parallel) == (2, 4)


def test_embedding_comes_first_and_the_head_last(llama_8b):
    outside = {
        index: {t.role for t in stage(run(), llama_8b, index).own.tensors if t.layers is None} for index in (0, 1, 3)
    }
    assert outside == {0: {"embedding"}, 1: set(), 3: {"norm", "head"}}


@pytest.mark.parametrize(("limit", "waiting"), [(0, 0), (2, 2), (8, 7)])
def test_deferred_gradients_of_logits_wait_on_the_last_stage_alone(llama_8b, limit, waiting):
    plain, found = run(), run().with_changes({"loss.deferred": limit})
    first, *_, last = (
        [phase.allocated for phase in item.phases if phase.name == "forward"]
        for item in by_stage(found, llama_8b, None)
    )
    before = [
        [phase.allocated for phase in item.phases if phase.name == "forward"]
        for item in by_stage(plain, llama_8b, None)
    ]
    assert first == before[0]
    assert last[0] - before[-1][0] == waiting * 512 * 2 * (128256 + 4096)


def sharded(microbatches=8):
    mixed = FsdpMixedPrecision(param_dtype="bfloat16", reduce_dtype="float32")
    plan = Fsdp(version=2, sharding="full_shard", wrap="transformer", sync_each_batch=True, mixed_precision=mixed)
    job = run(micro=1, gpus=8, microbatches=microbatches, fsdp=plan)
    return replace(job, weights=Weights("float32"))


def backward(estimate):
    return max((phase for phase in estimate.phases if phase.name == "backward"), key=lambda phase: phase.allocated)


def test_torch_s_schedules_keep_whole_gradients_to_the_last_micro_batch(llama_8b):
    middle = stage(sharded(), llama_8b, 1)
    last = backward(by_stage(sharded(), llama_8b, None)[-1])
    assert last.components["gradients"] == 4 * sum(tensor.elements for tensor in stage(run(), llama_8b, 3).own.tensors)
    assert middle.job.gradient_accumulation_steps == 8
    one = stage(sharded(1), llama_8b, 1).job
    assert (one.gradient_accumulation_steps, one.parallelism.fsdp.sync_each_batch) == (1, True)


def test_torchtitan_kept_the_outputs_of_every_micro_batch(llama_8b):
    old, new = (
        replace(sharded(), framework="torchtitan", versions={"torchtitan": version}) for version in ("0.2.0", "0.2.1")
    )
    more = [
        backward(here).allocated - backward(there).allocated
        for here, there in zip(by_stage(old, llama_8b, None), by_stage(new, llama_8b, None), strict=True)
    ]
    assert more == [0, 7 * 512 * 128256 * 2]


def test_tied_embeddings_are_on_both_ends(decoder):
    model = decoder(layers=4, tied=True)
    for index in (0, 3):
        assert "embedding" in {tensor.role for tensor in stage(run(), model, index).own.tensors}


def test_stages_share_the_layers(llama_8b):
    total = sum(sum(t.elements for t in stage(run(), llama_8b, index).own.tensors) for index in range(4))
    assert total == llama_8b.parameters


def test_stated_ends_leave_the_rest_to_the_others(decoder):
    """DeepSeek-V3's 61 layers over 16 stages: 4 on each, 1 on the last."""
    counts = layer_counts(run(stages=16, last_stage_layers=1), 61, 16)
    assert counts == [4] * 15 + [1]
    assert layer_counts(run(stages=4, first_stage_layers=2), 8, 4) == [2, 2, 2, 2]


@pytest.mark.parametrize(
    ("schedule", "chunks", "micro", "held"),
    [
        ("1f1b", 1, 8, [4, 3, 2, 1]),
        ("1f1b", 1, 2, [2, 2, 2, 1]),
        ("gpipe", 1, 8, [8, 8, 8, 8]),
        ("zero_bubble", 1, 8, [4, 3, 2, 1]),
        # 2 (4 - s - 1) + (2 - 1) 4 + 1 = 11, 9, 7, 5 chunks of half the layers
        ("1f1b", 2, 8, [5.5, 4.5, 3.5, 2.5]),
        ("dualpipe", 1, 8, [2.5, 2.5, 2.5, 2.5]),
    ],
)
def test_micro_batches_in_flight(schedule, chunks, micro, held):
    job = run(micro=micro, pipeline_schedule=schedule, virtual_stages=chunks)
    assert [in_flight(job, index, 4) for index in range(4)] == held


def test_interleaving_costs_what_the_paper_says():
    """Activations of the first stage grow by 1 + (p - 1) / (p v) (Korthikanti et al. 2022, section 4.2.1)."""
    job = run(stages=8, micro=64, virtual_stages=4)
    assert in_flight(job, 0, 8) / 8 == pytest.approx(1 + 7 / (8 * 4))


def test_one_process_over_several_gpus_runs_one_batch_at_a_time():
    job = Job(parallelism=Parallelism(device_map="auto"), gradient_accumulation_steps=8, hardware=Hardware(gpus=4))
    assert in_flight(job, 0, 4) == 1


def test_dualpipe_holds_two_stages(llama_8b):
    plain, both = stage(run(), llama_8b, 0), stage(run(pipeline_schedule="dualpipe"), llama_8b, 0)
    assert both.own.shape.layers == 2 * plain.own.shape.layers
    assert {t.role for t in both.own.tensors if t.layers is None} == {"embedding", "norm", "head"}


def test_the_fullest_stage_is_named(llama_8b):
    """Long accumulation fills the first stage; a short one leaves the logits of the last as the most."""
    assert estimate_job(run(micro=32), llama_8b, None).fullest == "pipeline stage 0 of 4"
    assert estimate_job(run(micro=1), llama_8b, None).fullest == "pipeline stage 3 of 4"


@given(
    micro=st.integers(1, 16),
    schedule=st.sampled_from(["1f1b", "gpipe", "zero_bubble"]),
    chunks=st.sampled_from([1, 2, 4]),
)
def test_earlier_stages_never_hold_less(micro, schedule, chunks):
    job = run(micro=micro, pipeline_schedule=schedule, virtual_stages=chunks)
    held = [in_flight(job, index, 4) for index in range(4)]
    assert held == sorted(held, reverse=True)
    assert held[0] <= micro


def test_an_earlier_stage_reserves_nothing_for_a_loss(llama_8b):
    """Where every freed block is used again, it reserves little more than what it allocates, of which no logits."""
    plan = run(micro=1, packing=True).with_changes({"sequence_length": 4096, "allocator.expandable_segments": True})
    first, *_, last = by_stage(plan, llama_8b, None)
    logits = max(phase.components.get("logits", 0) for phase in last.phases)
    assert logits > GIB
    assert not first.components["logits"]
    assert first.per_gpu.reserved - first.per_gpu.allocated < logits / 4


def test_further_micro_batches_on_the_last_stage_have_not_come_to_the_head(llama_8b):
    """Interleaved: the loss of one micro batch follows its forward pass; all forward passes first: a loss for each."""
    whole = by_stage(run(), llama_8b, None)[-1]
    chunks = by_stage(run(virtual_stages=2), llama_8b, None)[-1]
    behind = by_stage(run(micro=2, pipeline_schedule="gpipe"), llama_8b, None)[-1]
    logits = max(phase.components.get("logits", 0) for phase in whole.phases)
    grown = [plan.per_gpu.allocated - whole.per_gpu.allocated for plan in (chunks, behind)]
    assert grown[0] > 0
    assert grown[1] - grown[0] / 1.5 > logits / 4


@pytest.mark.parametrize(("steps", "batches", "kept"), [(1, 8, 7), (4, 1, 0), (4, None, 3)])
def test_early_torchtitan_keeps_the_logits_of_one_pass_through_the_pipeline(llama_8b, steps, batches, kept):
    job = replace(run(micro=steps, microbatches=batches), framework="torchtitan", versions={"torchtitan": "0.2.0"})
    *others, last = pipeline(job, llama_8b)
    assert kept_outputs(last) == kept * 512 * llama_8b.shape.vocabulary
    assert not any(kept_outputs(item) for item in others)
    newer = replace(job, versions={"torchtitan": "0.2.1"})
    assert kept_outputs(pipeline(newer, llama_8b)[-1]) == 0


def test_a_stage_without_layers_of_an_encoder_cannot_be_estimated():
    plan = Parallelism(pipeline=3, last_stage_layers=0)
    job = Job(model="google-t5/t5-small", micro_batch_size=1, sequence_length=64, parallelism=plan)
    with pytest.raises(NotEstimable, match="no layer of its encoder"):
        estimate(job)
