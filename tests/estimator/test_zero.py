"""ZeRO: model states by stage, buckets, gathered parameters, offload."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulint import estimate
from gpulint.estimator.peak_candidate import PeakCandidate
from gpulint.estimator.sharding.strategy import sharded_state
from gpulint.estimator.terms import of, total
from gpulint.job.job import (
    Adapter,
    Hardware,
    Job,
    Offload,
    Optimizer,
    Parallelism,
    Precision,
    Quantization,
    Weights,
    Zero,
)

START = PeakCandidate("loss", 0, 0, 0, None)


def job(stage, gpus, model=None, micro_steps=1, name="AdamW", **zero):
    return Job(
        model="test",
        weights=Weights("bfloat16"),
        precision=Precision(master_weights=True),
        optimizer=Optimizer(name),
        gradient_accumulation_steps=micro_steps,
        hardware=Hardware(gpus=gpus),
        parallelism=Parallelism(zero=Zero(stage, **zero)),
    )


GALACTICA = {
    "model_type": "opt", "architectures": ["OPTForCausalLM"], "hidden_size": 7168, "num_hidden_layers": 48,
    "num_attention_heads": 56, "ffn_dim": 28672, "vocab_size": 50000, "max_position_embeddings": 2048,
    "word_embed_proj_dim": 7168, "do_layer_norm_before": True, "tie_word_embeddings": True,
}  # fmt: skip


def test_without_zero_init_each_gpu_holds_the_whole_model():
    """DeepSpeed issue 2899 logs `Max_MA 55.83 GB` for Galactica 30B, whose partitions went to main memory."""
    away = Offload("cpu")
    run = job(3, 4, init=False, offload_parameters=away, offload_optimizer=away).with_changes({"model": GALACTICA})
    found = estimate(run)
    load = next(phase for phase in found.phases if phase.name == "load")
    assert load.allocated / 2**30 == pytest.approx(55.83, abs=0.02)
    assert found.host_memory.load == 4 * 2 * found.parameters
    divided = estimate(run.with_changes({"parallelism.zero.init": True}))
    assert divided.phases[0].allocated == pytest.approx(2 * 50000 * 7168, rel=0.01)
    assert divided.host_memory.load == 0


def test_the_first_shard_lies_beside_the_whole_model(ten_billion):
    """Shards that stay on the GPU: the first, of the embedding, while all of the model is still there."""
    whole = 2 * ten_billion.parameters
    plan = sharded_state(job(3, 4, init=False), ten_billion)
    assert plan.weights + plan.load == pytest.approx(whole + 2 * 32000 * 5120 / 4, rel=1e-4)


def test_the_largest_gathered_tensor_may_be_asked_for_anew():
    """Layers are cut from the block that the embedding gave back; expandable segments map what is missing."""
    run = job(3, 8).with_changes({"model": "Qwen/Qwen2.5-7B", "micro_batch_size": 1, "sequence_length": 512})
    (found,) = (item for item in estimate(run).assumptions if "asked for anew" in item.origin)
    assert found.high == pytest.approx(2 * 152064 * 3584, abs=2 << 20)
    others = run.with_changes({"allocator.expandable_segments": True}), run.with_changes({"hardware.gpus": 1})
    assert not [item for other in others for item in estimate(other).assumptions if "asked for anew" in item.origin]


def test_a_quantised_model_is_whole_before_it_is_divided(ten_billion):
    """from_pretrained leaves `zero.Init` out for it: embedding and head of 16 bits lie whole on each rank too."""
    packed = job(3, 4).with_changes({"weights.quantization": Quantization("bnb-nf4", 4)})
    plan = sharded_state(packed, ten_billion)
    assert plan.load >= 2 * 2 * 32000 * 5120 * 3 / 4


def in_step(plan):
    return of("gradients", plan.in_step)


def end(plan):
    return PeakCandidate("backward", 0, 0, plan.trainable, None)


@pytest.fixture(scope="session")
def ten_billion(decoder):
    """10.2 B parameters, the running example of the ZeRO paper's arithmetic."""
    return decoder(hidden=5120, layers=31, heads=40, kv_heads=40, intermediate=13824, vocabulary=32000)


@pytest.mark.parametrize(
    ("stage", "ranks", "each"),
    [
        (0, 1, lambda n: 16),
        (1, 64, lambda n: 4 + 12 / n),
        (2, 64, lambda n: 2 + 14 / n),
        (3, 64, lambda n: 16 / n),
        (1, 8, lambda n: 4 + 12 / n),
        (2, 8, lambda n: 2 + 14 / n),
        (3, 8, lambda n: 16 / n),
    ],
)
def test_worked_example_bytes_a_parameter_by_stage(ten_billion, stage, ranks, each):
    """Mixed-precision Adam: 2 + 2 + 12 B, of which stage 1 divides the 12, stage 2 also the gradients, stage 3 all."""
    assert ten_billion.parameters == pytest.approx(10.16e9, rel=1e-3)
    plan = sharded_state(job(stage, ranks), ten_billion)
    partition = total(plan.partition) if stage == 1 else 0
    states = plan.weights + plan.gradient_bytes(plan.trainable) - partition + plan.optimizer
    assert states == pytest.approx(each(ranks) * ten_billion.parameters, rel=1e-3)


@pytest.mark.parametrize(("parallelism", "each"), [({"tensor": 8}, 16 / 8), ({"data": 8}, 16)])
def test_worked_example_tensor_and_data_parallelism(ten_billion, parallelism, each):
    """Data parallelism alone keeps everything on each rank, tensor parallelism divides it."""
    whole = Job(
        weights=Weights("bfloat16"),
        precision=Precision(master_weights=True),
        optimizer=Optimizer("fused_adam"),
        hardware=Hardware(gpus=8),
        parallelism=Parallelism(**parallelism),
    )
    plan = sharded_state(whole, ten_billion)
    states = plan.weights + plan.gradients + plan.optimizer
    assert states == pytest.approx(each * ten_billion.parameters, rel=2e-3)


def test_buckets_are_the_files_own_and_exist_only_in_the_backward_pass(llama_8b):
    plan = sharded_state(job(2, 8, reduce_bucket_size=200_000_000), llama_8b)
    assert plan.buffer_bytes(START) == 0
    largest = 2 * 4096 * 14336
    assert plan.buffer_bytes(end(plan)) == 2 * 200_000_000 + largest
    twice = sharded_state(job(2, 8, reduce_bucket_size=200_000_000, overlap_comm=True), llama_8b)
    assert twice.buffer_bytes(end(twice)) == 4 * 200_000_000 + largest


@pytest.mark.parametrize(
    ("version", "contiguous", "early"),
    [("0.18.2", True, True), ("0.18.3", True, False), ("0.16.0", False, False), (None, True, False)],
)
def test_buckets_were_there_before_the_first_gradient_until_0_18_3(llama_8b, version, contiguous, early):
    run = job(1, 8, reduce_bucket_size=200_000_000, contiguous_gradients=contiguous)
    run.versions = {"deepspeed": version} if version else {}
    plan = sharded_state(run, llama_8b)
    first = PeakCandidate("backward", 0, 0, 0, None)
    assert plan.buffer_bytes(first) == (2 * 200_000_000 if early else 0)
    assert plan.buffer_bytes(START) == 0
    assert plan.buffer_bytes(end(plan)) == 2 * 200_000_000


@pytest.mark.parametrize("away", [Offload(), Offload("cpu")])
@pytest.mark.parametrize("stage", [1, 2])
def test_gradients_used_up_in_the_backward_pass_are_never_fewer_than_none(llama_8b, stage, away):
    run = job(stage, 8, name="adamw_torch_4bit", offload_optimizer=away)
    run.optimizer.in_backward = True
    plan = sharded_state(run, llama_8b)
    assert plan.in_backward
    assert in_step(plan) >= 0


def test_stage_3_always_has_its_bucket_and_gradient_partition(llama_8b):
    plan = sharded_state(
        job(3, 8, reduce_bucket_size=10_000_000, prefetch_bucket_size=0, max_reuse_distance=0), llama_8b
    )
    assert plan.gradient_bytes(0) == plan.gradient_bytes(plan.trainable) == 2 * llama_8b.parameters // 8
    norms = 65 * 4096
    assert plan.buffers == 2 * 10_000_000 + 2 * norms


def test_the_step_makes_a_flat_copy_and_an_fp32_gradient(llama_8b):
    plan = sharded_state(job(2, 8), llama_8b)
    share = llama_8b.parameters // 8
    assert in_step(plan) == pytest.approx((2 + 2 + 4) * share, rel=1e-6)
    small = sharded_state(job(3, 8, sub_group_size=1_000_000), llama_8b)
    assert in_step(small) - small.gradients == 6 * 1_000_000


@pytest.mark.parametrize(
    ("dtype", "deepspeed", "tested"),
    [("float16", None, True), ("bfloat16", None, False), ("bfloat16", "0.12.2", True), ("bfloat16", "0.12.3", False)],
)
def test_stage_3_tests_its_partition_for_overflow_on_another_stream(llama_8b, dtype, deepspeed, tested):
    """abs() of a 16-bit element and a byte that says whether it is infinite: blocks that the step cannot use."""
    given = job(3, 16)
    given.weights.dtype = dtype
    given.versions = {"deepspeed": deepspeed} if deepspeed else {}
    plan = sharded_state(given, llama_8b)
    share = llama_8b.parameters // 16
    assert plan.side_stream_bytes == pytest.approx(3 * share if tested else 0, rel=1e-3)
    assert in_step(plan) - plan.gradients == pytest.approx(6 * share, rel=1e-6)


def test_a_partition_of_many_sub_groups_is_tested_whole(llama_8b):
    given = job(3, 1, sub_group_size=1_000_000_000)
    given.weights.dtype = "float16"
    plan = sharded_state(given, llama_8b)
    assert in_step(plan) - plan.gradients == pytest.approx(3 * llama_8b.parameters, rel=1e-6)
    assert plan.side_stream_bytes == pytest.approx(6 * 1_000_000_000, rel=1e-3)
    away = sharded_state(job(3, 1, offload_optimizer=Offload("cpu", True)), llama_8b)
    assert away.side_stream_bytes == 0


def test_stage_3_takes_a_sub_group_s_share_of_what_the_step_allocates(llama_8b):
    """Two copies of the second moments of 100 M elements, less the 16-bit copy of their gradients that is gone."""
    given = job(3, 8, sub_group_size=100_000_000)
    given.optimizer.name = "stable_adamw"
    assert sharded_state(given, llama_8b).step_optimizer == pytest.approx((2 * 4 - 2) * 100_000_000, rel=1e-6)


@pytest.mark.parametrize(("name", "copies"), [("AdamW", 2), ("adamw_torch", 1)])
def test_stage_0_copies_each_gradient_in_float32_and_flat_ones_for_deepspeeds_adam(llama_8b, name, copies):
    run = job(0, 8, name=name)
    run.weights.dtype = "float16"
    plan = sharded_state(run, llama_8b)
    assert in_step(plan) == pytest.approx((2 + 4 * copies) * llama_8b.parameters, rel=1e-6)


def test_accumulation_keeps_a_second_partition_under_stage_2(llama_8b):
    once, many = sharded_state(job(2, 8), llama_8b), sharded_state(job(2, 8, micro_steps=4), llama_8b)
    assert many.gradient_bytes(many.trainable) == 2 * once.gradient_bytes(once.trainable)


def test_offloading_the_optimizer_leaves_weights_and_one_buffer(llama_8b):
    plan = sharded_state(job(2, 8, offload_optimizer=Offload("cpu", True)), llama_8b)
    assert plan.optimizer == 0
    assert plan.gradient_bytes(plan.trainable) == 0
    assert plan.buffers == 2 * 128256 * 4096
    assert plan.host == pytest.approx(18 * llama_8b.parameters, rel=1e-6)


def test_offloading_everything_leaves_gathered_parameters(llama_8b):
    away = {"offload_optimizer": Offload("cpu"), "offload_parameters": Offload("cpu")}
    plan = sharded_state(job(3, 8, **away), llama_8b)
    assert plan.weights == plan.optimizer == plan.gradients == 0
    assert plan.host == pytest.approx(20 * llama_8b.parameters, rel=1e-6)
    assert plan.buffer_bytes(START) > 0


def test_nvme_keeps_the_states_out_of_main_memory(llama_8b):
    cpu, nvme = (
        sharded_state(job(3, 8, offload_optimizer=Offload(device)), llama_8b).host for device in ("cpu", "nvme")
    )
    assert 0 < nvme < cpu


def test_lora_shards_only_the_base_under_stage_3(llama_8b):
    plan = job(3, 8)
    plan.method, plan.adapter = "lora", Adapter(r=16, targets=["q_proj", "v_proj"])
    built = sharded_state(plan, llama_8b)
    assert built.weights == pytest.approx(2 * llama_8b.parameters / 8, rel=1e-4)
    assert built.trainable == 6_815_744
    full = sharded_state(job(3, 8), llama_8b)
    assert built.gathered.width == full.gathered.width == 2


def test_a_4_bit_base_is_whole_on_every_rank_unless_it_is_stored_as_floats(llama_8b):
    plan = job(3, 8)
    plan.method, plan.adapter = "lora", Adapter(r=16, targets=["q_proj", "v_proj"])
    plan.weights.quantization = Quantization("bnb-nf4", 4, double_quant=True)
    whole = sharded_state(plan, llama_8b)
    plan.weights.quantization = Quantization("bnb-nf4", 4, double_quant=True, storage_dtype="bfloat16")
    divided = sharded_state(plan, llama_8b)
    codes = 0.5 * 32 * 218_103_808
    assert whole.weights - divided.weights == pytest.approx(codes * 7 / 8, rel=1e-3)
    assert divided.load > whole.weights - divided.weights


@given(
    stage=st.integers(0, 2),
    ranks=st.sampled_from([1, 2, 4, 8, 64]),
    name=st.sampled_from(["AdamW", "adamw_8bit", "adafactor", "sgd", "lion_32bit", "adamw_torch"]),
    steps=st.integers(1, 2),
)
def test_a_higher_stage_or_more_ranks_never_keep_more(tiny, stage, ranks, name, steps):
    def states(stage_, ranks_):
        plan = sharded_state(job(stage_, ranks_, micro_steps=steps, name=name), tiny)
        gradients = plan.gradients if stage_ < 2 else plan.gradient_bytes(plan.trainable)
        assert min(plan.weights, plan.optimizer, gradients, plan.buffers, plan.load) >= 0
        return plan.weights + plan.optimizer + (gradients if steps == 1 else 0)

    rounding = 200 * 512
    assert states(stage + 1, ranks) <= states(stage, ranks) + rounding
    assert states(stage, 2 * ranks) <= states(stage, ranks) + rounding


@given(
    stage=st.integers(1, 3),
    where=st.sampled_from(["cpu", "nvme"]),
    name=st.sampled_from(["AdamW", "adamw_8bit", "adafactor"]),
)
def test_offload_never_keeps_more_model_states(tiny, stage, where, name):
    here = sharded_state(job(stage, 8, name=name), tiny)
    away = sharded_state(job(stage, 8, name=name, offload_optimizer=Offload(where)), tiny)
    for plan in (here, away):
        assert in_step(plan) >= 0
    assert away.weights + away.optimizer + away.gradient_bytes(away.trainable) <= (
        here.weights + here.optimizer + here.gradient_bytes(here.trainable)
    )
    assert away.optimizer + away.step_optimizer <= here.optimizer + here.step_optimizer
    assert away.host > here.host == 0


def test_16_bit_masters_halve_the_optimizer(llama_8b):
    plan = job(2, 8)
    plan.precision.master_weights = False
    assert sharded_state(plan, llama_8b).optimizer == pytest.approx(6 * llama_8b.parameters / 8, rel=1e-6)
    plan.weights.dtype = "float32"
    assert sharded_state(plan, llama_8b).optimizer == pytest.approx(12 * llama_8b.parameters / 8, rel=1e-6)


@pytest.mark.parametrize("ranks", [1, 8, 64])
def test_states_against_deepspeed_s_own_estimators(llama_8b, ranks):
    """Both estimators count 18 B: 2 for 16-bit gradients, 4 for fp32 ones, 12 for masters and states.

    deepspeed 0.18.2: estimate_zero2_model_states_mem_needs, 2 P + 18 P / N without offload and 2 P with it;
    estimate_zero3_model_states_mem_needs, 18 P / N (16-bit weights 2, fp32 gradients 4, 12) and with both offloads
    the largest layer alone. What they leave out is what a step does with the gradients.
    """
    n = llama_8b.parameters
    second = sharded_state(job(2, ranks), llama_8b)
    partition = second.gradient_bytes(second.trainable)
    assert second.weights + partition + second.optimizer + 4 * n / ranks == pytest.approx(
        2 * n + 18 * n / ranks, rel=1e-3
    )
    assert in_step(second) == pytest.approx(2 * partition + 4 * n / ranks, rel=1e-3)
    away = sharded_state(job(2, ranks, offload_optimizer=Offload("cpu")), llama_8b)
    assert away.weights + away.optimizer + away.gradient_bytes(away.trainable) == pytest.approx(2 * n, rel=1e-3)
    third = sharded_state(job(3, ranks), llama_8b)
    assert third.weights + third.optimizer + 4 * n / ranks == pytest.approx(18 * n / ranks, rel=1e-3)
    both = sharded_state(job(3, ranks, offload_optimizer=Offload("cpu"), offload_parameters=Offload("cpu")), llama_8b)
    assert both.weights + both.optimizer + both.gradients == 0
