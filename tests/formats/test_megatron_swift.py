"""Megatron-SWIFT: flags and YAML of ms-swift's Megatron trainer."""

import pytest

from gpulint.formats.core.format import NoJobError
from gpulint.formats.core.registry import recognise
from gpulint.source.read import parse

from .origins import TRAINING, missing

SFT = """\
model: Qwen/Qwen2.5-7B-Instruct
tuner_type: full
tensor_model_parallel_size: 2
sequence_parallel: true
micro_batch_size: 2
global_batch_size: 64
recompute_granularity: full
recompute_method: uniform
recompute_num_layers: 1
max_length: 4096
"""


OFFLOAD = "optimizer_cpu_offload: true\noptimizer_offload_fraction"
MOMENTS = "exp_avg_dtype: bf16\nexp_avg_sq_dtype: bf16\n"
FSDP = "use_megatron_fsdp: true\ndata_parallel_sharding_strategy"


@pytest.fixture
def swift(bench):
    return bench("megatron_swift")


def test_full_fine_tune(swift):
    assert recognise(parse(SFT, "a.yaml", "yaml")).name == "megatron_swift"
    job = swift.job(SFT, gpus=8)
    assert (job.model, job.method, job.framework, job.objective) == (
        "Qwen/Qwen2.5-7B-Instruct",
        "full",
        "megatron",
        "sft",
    )
    assert (job.parallelism.tensor, job.parallelism.sequence, job.parallelism.zero.stage) == (2, True, 1)
    assert (job.micro_batch_size, job.gradient_accumulation_steps, job.sequence_length) == (2, 8, 4096)
    assert (job.weights.dtype, job.precision.master_weights, job.precision.gradients) == ("bfloat16", True, "float32")
    assert (job.activation_checkpointing, job.packing, job.hardware.gpus) == ("full", False, 8)
    assert missing(job, TRAINING) == []


def test_defaults(swift):
    job = swift.job("model: a/b\nmicro_batch_size: 1\nglobal_batch_size: 16\ntuner_type: full\n")
    assert (job.activation_checkpointing, job.checkpoint_policy) == ("selective", "core_attention")
    assert (job.parallelism.zero.stage, job.optimizer.name, job.attention) == (
        1, "adamw_torch_fused", "flash_attention_2",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "path", "value"),
    [
        ("fp16: true", "precision.gradients", "float16"),
        ("bf16: true\nmain_grads_dtype: bf16", "precision.gradients", "bfloat16"),
        ("optimizer: dist_muon", "parallelism.zero.stage", 0),
        ("optimizer_cpu_offload: true", "parallelism.zero.offload_optimizer.device", "cpu"),
        (f"{OFFLOAD}: 0.4", "parallelism.zero.offload_optimizer.ratio", 0.4),
        (f"{OFFLOAD}: 0", "parallelism.zero.offload_optimizer.device", "none"),
        (f"{MOMENTS}use_precision_aware_optimizer: true", "optimizer.state_dtype", "bfloat16"),
        (MOMENTS.strip(), "optimizer.state_dtype", None),
        ("expert_model_parallel_size: 4", "parallelism.expert_tensor", 1),
        ("expert_tensor_parallel_size: 2", "parallelism.expert_tensor", 2),
        ("padding_free: true", "padded", False),
        ("cross_entropy_loss_fusion: false", "loss.compiled", False),
        ("cross_entropy_fusion_impl: te", "loss.compiled", False),
        ("padding_free: true", "loss.compiled", True),
        (f"{FSDP}: optim_grads", "parallelism.fsdp.sharding", "shard_grad_op"),
        ("packing: true\npacking_length: 8192", "sequence_length", 8192),
        ("padding_free: true", "packing", False),
    ],
)  # fmt: skip
def test_arguments(swift, line, path, value):
    assert swift.job(f"{SFT}{line}\n", gpus=8).get(path) == value


@pytest.mark.parametrize(
    ("release", "kernel"),
    [("4.0.0", "torch"), ("4.1.3", "te_cross_entropy"), ("4.3.2", "te_cross_entropy"), ("4.4.0", "torch")],
)
def test_three_releases_take_transformer_engine_s_loss_unasked(swift, release, kernel):
    assert swift.job(SFT, gpus=8, versions={"ms-swift": release}).loss.kernel == kernel
    off = swift.job(SFT + "cross_entropy_loss_fusion: false\n", gpus=8, versions={"ms-swift": release}).loss
    assert (off.kernel, off.compiled) == ("torch", False)


@pytest.mark.parametrize(
    ("words", "targets"),
    [
        ("[all-linear, all-router]", "all-linear"),
        ("[linear_qkv, linear_fc2]", ["q_proj", "k_proj", "v_proj", "down_proj"]),
    ],
)
def test_targets_are_megatron_layers(swift, words, targets):
    job = swift.job(SFT.replace("full\nt", "lora\nt") + f"target_modules: {words}\nlora_rank: 16\n")
    assert (job.method, job.adapter.r, job.adapter.targets) == ("lora", 16, targets)


def test_other_commands_and_ray_runs_are_no_jobs(swift):
    for text in ("command: export\n", "train: {gpus: 4}\n"):
        with pytest.raises(NoJobError):
            swift.job(SFT + text)


def test_keys(swift):
    problems = swift.problems(SFT + "recompute_granularty: full\nno_save_optim: true\n", "unknown-key")
    assert [(item.key, item.values["suggestion"]) for item in problems] == [
        ("recompute_granularty", "recompute_granularity")
    ]


def test_changes_are_written_in_its_words(swift):
    text, job = swift.change(SFT, {"micro_batch_size": 1, "activation_checkpointing": "none"}, gpus=8)
    assert "micro_batch_size: 1" in text
    assert (job.micro_batch_size, job.activation_checkpointing) == (1, "none")


def test_muon_goes_without_the_distributed_optimizer(swift):
    form, changes = swift.format, {"parallelism.zero.stage": 1}
    off = "use_distributed_optimizer: false\n"
    assert form.describe(swift.read(SFT + off), changes) == "use_distributed_optimizer: true"
    assert form.describe(swift.read(SFT + off + "optimizer: muon\n"), changes) is None


def test_further_heads_are_said_and_bounded(swift):
    job = swift.job(SFT + "mtp_num_layers: 1\n", gpus=2)
    assert job.further_heads == 1
    assert swift.job(SFT, gpus=2).further_heads == 0
