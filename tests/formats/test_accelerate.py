import pytest

from gpulint.formats.core.registry import recognise
from gpulint.source.read import parse

DEEPSPEED = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
mixed_precision: bf16
num_machines: 2
num_processes: 16
deepspeed_config:
  zero_stage: 3
  offload_optimizer_device: none
  offload_param_device: cpu
  zero3_init_flag: true
"""
FSDP = """\
distributed_type: FSDP
mixed_precision: bf16
num_processes: 4
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_sharding_strategy: SHARD_GRAD_OP
  fsdp_offload_params: false
"""


@pytest.fixture
def acc(bench):
    return bench("accelerate")


def test_recognition():
    assert recognise(parse(DEEPSPEED, "c.yaml", "yaml")).name == "accelerate"
    assert recognise(parse("distributed_type: x\n", "c.yaml", "yaml")) is None


def test_zero_from_its_own_keys(acc):
    job = acc.job(DEEPSPEED)
    zero = job.parallelism.zero
    assert (zero.stage, zero.offload_optimizer.device, zero.offload_parameters.device) == (3, "none", "cpu")
    assert (zero.overlap_comm, zero.reduce_bucket_size) == (True, 500_000_000)
    assert (job.weights.dtype, job.precision.autocast, job.precision.master_weights) == ("bfloat16", None, True)
    assert job.origins["parallelism.zero.stage"].key == "deepspeed_config.zero_stage"
    assert job.origins["weights.dtype"].key == "mixed_precision"
    assert job.model is None


def test_processes_are_gpus_over_all_machines(acc):
    job = acc.job(DEEPSPEED)
    assert (job.hardware.gpus, job.hardware.nodes) == (16, 2)
    assert job.origins["hardware.gpus"].key == "num_processes"
    assert acc.job(DEEPSPEED, gpus=4).hardware.gpus == 4


def test_the_default_stage_is_2(acc):
    job = acc.job("distributed_type: DEEPSPEED\nnum_processes: 8\n")
    assert (job.parallelism.zero.stage, job.origins["parallelism.zero.stage"].kind) == (2, "default")


def test_a_deepspeed_file_takes_over_and_nothing_stands_beside_it(acc):
    text = (
        "distributed_type: DEEPSPEED\nnum_processes: 8\nmixed_precision: bf16\n"
        "deepspeed_config:\n  deepspeed_config_file: ds.json\n  zero_stage: 2\n"
    )
    files = {"ds.json": '{"zero_optimization": {"stage": 1}, "bf16": {"enabled": true}}'}
    job = acc.job(text, files=files)
    assert (job.parallelism.zero.stage, job.origins["parallelism.zero.stage"].file) == (1, "ds.json")
    problems = acc.problems(text, "contradiction", files=files)
    assert [problem.key for problem in problems] == ["deepspeed_config.zero_stage", "mixed_precision"]


def test_fsdp1(acc):
    job = acc.job(FSDP)
    fsdp = job.parallelism.fsdp
    assert (fsdp.version, fsdp.sharding, fsdp.reshard_after_forward, fsdp.wrap) == (
        1,
        "shard_grad_op",
        False,
        "transformer",
    )
    assert (fsdp.upcast_trainable, fsdp.cpu_ram_efficient_loading, fsdp.state_dict_type) == (
        True,
        True,
        "FULL_STATE_DICT",
    )
    assert job.precision.autocast == "bfloat16"


def test_a_strategy_by_number(acc):
    assert acc.job(FSDP.replace("SHARD_GRAD_OP", "3")).parallelism.fsdp.sharding == "no_shard"


def test_fsdp2_takes_a_switch(acc):
    text = FSDP.replace("fsdp_sharding_strategy: SHARD_GRAD_OP", "fsdp_version: 2\n  fsdp_reshard_after_forward: false")
    fsdp = acc.job(text).parallelism.fsdp
    assert (fsdp.version, fsdp.sharding, fsdp.reshard_after_forward) == (2, "shard_grad_op", False)
    assert (fsdp.state_dict_type, fsdp.mixed_precision.buffer_dtype) == ("SHARDED_STATE_DICT", None)


def test_accelerate_hands_version_1_no_backward_prefetch(acc):
    section = "fsdp_config:\n"
    silent, stated = acc.job(FSDP), acc.job(FSDP.replace(section, f"{section}  fsdp_backward_prefetch: BACKWARD_PRE\n"))
    assert silent.parallelism.fsdp.backward_prefetch == "NO_PREFETCH"
    assert silent.origins["parallelism.fsdp.backward_prefetch"].kind == "default"
    assert stated.parallelism.fsdp.backward_prefetch == "BACKWARD_PRE"
    assert acc.job(FSDP + "  fsdp_version: 2\n").parallelism.fsdp.backward_prefetch is None


def test_no_wrapping_is_the_default(acc):
    assert acc.job("distributed_type: FSDP\nnum_processes: 2\n").parallelism.fsdp.wrap == "none"


def test_keys_without_prefix_mean_the_same(acc):
    text = (
        "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  offload_params: true\n"
        "  activation_checkpointing: true\n"
    )
    job = acc.job(text)
    assert (job.parallelism.fsdp.offload, job.activation_checkpointing) == (True, "full")
    assert (job.parallelism.fsdp.checkpoints_inside, job.reentrant) == (True, False)
    assert acc.read(text).problems == []


def test_parallelism_config(acc):
    text = FSDP + (
        "parallelism_config:\n  parallelism_config_dp_replicate_size: 2\n  parallelism_config_dp_shard_size: 2\n"
        "  parallelism_config_tp_size: 2\n"
    )
    job = acc.job(text)
    assert (job.parallelism.tensor, job.parallelism.fsdp.shard_size) == (2, 2)


def test_cpu_and_tpu_runs_have_no_gpus(acc):
    assert acc.job("distributed_type: MULTI_CPU\nnum_processes: 4\n").hardware.gpus is None
    assert acc.job("distributed_type: 'NO'\nuse_cpu: true\nnum_processes: 4\n").hardware.gpus is None


def test_not_distributed_is_one_gpu(acc):
    job = acc.job("distributed_type: 'NO'\nnum_machines: 1\n")
    assert (job.hardware.gpus, job.origins["hardware.gpus"].key) == (1, "distributed_type")


def test_unknown_keys_at_the_top_stop_the_launch_and_below_have_no_effect(acc):
    text = DEEPSPEED.replace("zero3_init_flag", "zero3_init_flg") + "num_proceses: 2\n"
    assert [(p.key, p.values["treatment"], p.values["spelling"]) for p in acc.problems(text, "unknown-key")] == [
        ("deepspeed_config.zero3_init_flg", "ignored", "zero3_init_flag"),
        ("num_proceses", "refused", "num_processes"),
    ]


def test_an_unquoted_no_is_a_boolean(acc):
    text = "distributed_type: MULTI_GPU\nnum_processes: 2\nmixed_precision: no\n"
    (problem,) = acc.problems(text, "wrong-type")
    assert problem.key == "mixed_precision"
    assert problem.values["found"] == "no, which YAML takes for false where it is not quoted"


def test_edits(acc):
    changes = {"parallelism.zero.stage": 2, "parallelism.zero.offload_optimizer.device": "cpu"}
    after, job = acc.change(DEEPSPEED, changes)
    assert "  zero_stage: 2\n  offload_optimizer_device: cpu\n  offload_param_device: cpu\n" in after
    assert job.parallelism.zero.offload_optimizer.device == "cpu"


def test_fsdp_edits_keep_the_files_spelling(acc):
    after, job = acc.change(FSDP, {"parallelism.fsdp.sharding": "full_shard", "activation_checkpointing": "full"})
    assert "  fsdp_sharding_strategy: FULL_SHARD\n" in after
    assert "  fsdp_activation_checkpointing: true\n" in after
    assert (job.parallelism.fsdp.sharding, job.activation_checkpointing) == ("full_shard", "full")


def test_fsdp2_edits_write_the_switch(acc):
    text = FSDP.replace("fsdp_sharding_strategy: SHARD_GRAD_OP", "fsdp_version: 2")
    after, job = acc.change(text, {"parallelism.fsdp.sharding": "shard_grad_op"})
    assert "  fsdp_reshard_after_forward: false\n" in after
    assert job.parallelism.fsdp.sharding == "shard_grad_op"
    assert acc.change(text, {"parallelism.fsdp.sharding": "no_shard"}) is None


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (FSDP, {"parallelism.zero.offload_optimizer.device": "cpu"}),
        (DEEPSPEED, {"micro_batch_size": 1}),
        (DEEPSPEED, {"parallelism.fsdp.sharding": "hybrid_shard"}),
        ("distributed_type: TPU\nnum_processes: 8\n", {"parallelism.zero.stage": 3}),
        (
            "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: a.json\n",
            {"parallelism.zero.stage": 3},
        ),
    ],
)
def test_what_accelerate_cannot_say(acc, text, changes):
    assert acc.change(text, changes) is None


@pytest.mark.parametrize(("steps", "problems"), [("auto", 0), ("4", 0), ("many", 1)])
def test_accumulation_that_the_trainer_fills_in(acc, steps, problems):
    text = f"distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config:\n  gradient_accumulation_steps: {steps}\n"
    assert len(acc.read(text + "  zero_stage: 2\n").problems) == problems
