"""SkyRL: overrides of its trainer's config, under FSDP2 and Megatron, and what stands beside the policy."""

import pytest

from gpulint.formats.core.format import NoJobError
from gpulint.formats.core.registry import recognise
from gpulint.source.read import parse

from .conftest import read_as
from .origins import TRAINING, missing

GRPO = """trainer:
  strategy: fsdp
  placement: {colocate_all: true, policy_num_nodes: 2, policy_num_gpus_per_node: 4}
  algorithm: {advantage_estimator: grpo, use_kl_loss: true}
  policy: {model: {path: Qwen/Qwen2.5-7B-Instruct}}
  micro_train_batch_size_per_gpu: 4
  policy_mini_batch_size: 64
  max_prompt_length: 512
generator:
  n_samples_per_prompt: 8
  sampling_params: {max_generate_length: 1024}
  inference_engine: {tensor_parallel_size: 2, gpu_memory_utilization: 0.7}
"""

SCRIPT = """: "${NUM_GPUS:=4}"
uv run --isolated --extra fsdp -m skyrl.train.entrypoints.main_base \\
  data.train_data="['$DATA/train.parquet']" \\
  trainer.policy.model.path="Qwen/Qwen2.5-1.5B-Instruct" \\
  trainer.placement.policy_num_gpus_per_node=$NUM_GPUS \\
  trainer.micro_train_batch_size_per_gpu=64 \\
  generator.n_samples_per_prompt=5 \\
  generator.inference_engine.gpu_memory_utilization=0.8 \\
  "$@"
"""


def read(text, gpus=None):
    return read_as("skyrl", text, gpus)


def job(text):
    return read(text).job


def test_fsdp():
    assert recognise(parse(GRPO, "a.yaml", "yaml")).name == "skyrl"
    found = job(GRPO)
    assert (found.objective, found.model, found.hardware.gpus) == ("grpo", "Qwen/Qwen2.5-7B-Instruct", 8)
    assert (found.sequence_length, found.micro_batch_size, found.packing) == (1536, 4, True)
    assert found.gradient_accumulation_steps == 64 * 8 // (8 * 4)
    assert (found.weights.dtype, found.parallelism.fsdp.version, found.activation_checkpointing) == (
        "float32", 2, "full",
    )  # fmt: skip
    assert (found.rl.vllm, found.rl.vllm_gpu_memory_utilization, found.rl.policy_offload) == ("colocate", 0.7, True)
    assert found.rl.reference_model is False  # one model of a group is on the GPU at a time
    assert missing(found, TRAINING) == []
    assert not read(GRPO).problems


def test_keys_of_skyrl_train():
    former = GRPO.replace(
        "inference_engine: {tensor_parallel_size: 2, gpu_memory_utilization: 0.7}", "gpu_memory_utilization: 0.6"
    )
    former = former.replace("strategy: fsdp", "strategy: fsdp2\n  use_sample_packing: false")
    reading = read(former)
    assert (reading.job.rl.vllm_gpu_memory_utilization, reading.job.packing) == (0.6, False)
    assert not reading.problems


def test_engines_on_gpus_of_their_own():
    found = job(GRPO.replace("colocate_all: true", "colocate_all: false"))
    assert (found.rl.vllm, found.rl.vllm_gpu_memory_utilization, found.rl.reference_model) == ("server", None, False)


def test_tokens_fill_a_micro_batch():
    assert job(GRPO.replace("  max_prompt", "  max_tokens_per_microbatch: 3072\n  max_prompt")).micro_batch_size == 2


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("max_tokens_per_microbatch: 4608", ["max_tokens_per_microbatch: 3072", "per_gpu: 4"]),
        ("max_tokens_per_microbatch: null", ["max_tokens_per_microbatch: null", "per_gpu: 2"]),
    ],
)
def test_micro_batches_are_changed_where_they_are_said(bench, said, written):
    """Of two keys the first wins; one that says nothing is no place."""
    text, found = bench("skyrl").change(
        GRPO.replace("  max_prompt", f"  {said}\n  max_prompt"), {"micro_batch_size": 2}
    )
    assert found.micro_batch_size == 2
    assert all(part in text for part in written)


def test_a_critic_is_elsewhere_while_the_policy_trains():
    found = job(GRPO.replace("advantage_estimator: grpo", "advantage_estimator: gae"))
    assert (found.objective, found.rl.value_model, found.rl.reward_model) == ("ppo", "apart", "none")


def test_lora_offload_and_no_checkpointing():
    text = GRPO.replace(
        "{path: Qwen/Qwen2.5-7B-Instruct}}", "{path: a/b, lora: {rank: 16}}, fsdp_config: {cpu_offload: true}}"
    )
    found = job(text.replace("  max_prompt", "  gradient_checkpointing: false\n  flash_attn: false\n  max_prompt"))
    assert (found.method, found.adapter.r, found.adapter.targets) == ("lora", 16, "all-linear")
    assert (found.parallelism.fsdp.offload, found.activation_checkpointing) == (True, "none")
    assert (found.attention, found.packing) == ("sdpa", False)


@pytest.mark.parametrize(
    ("size", "sharding", "ranks"),
    [(7, "hybrid_shard", 7), (8, "full_shard", None), (9, "full_shard", None), (-1, "full_shard", None)],
)
def test_a_group_of_fewer_ranks_than_gpus_divides_the_weights(size, sharding, ranks):
    """Of eight GPUs."""
    fsdp = job(GRPO.replace("policy: {model", f"policy: {{fsdp_config: {{fsdp_size: {size}}}, model")).parallelism.fsdp
    assert (fsdp.sharding, fsdp.shard_size) == (sharding, ranks)


def test_megatron():
    megatron = (
        "policy: {megatron_config: {tensor_model_parallel_size: 2, pipeline_model_parallel_size: 2, "
        "optimizer_config_kwargs: {optimizer_cpu_offload: true, optimizer_offload_fraction: 0.5}}, "
    )
    found = job(GRPO.replace("strategy: fsdp", "strategy: megatron").replace("policy: {", megatron))
    plan = found.parallelism
    assert (found.framework, plan.tensor, plan.pipeline, plan.sequence, plan.zero.stage) == ("megatron", 2, 2, True, 1)
    assert (plan.zero.offload_optimizer.device, plan.zero.offload_optimizer.ratio) == ("cpu", 0.5)
    assert (found.activation_checkpointing, found.weights.dtype) == ("full", "bfloat16")
    assert found.gradient_accumulation_steps == 64 * 8 // (2 * 4)


def test_another_strategy_is_no_job():
    with pytest.raises(NoJobError, match="deepspeed"):
        job(GRPO.replace("strategy: fsdp", "strategy: deepspeed"))


def test_a_slip_is_reported():
    problems = read(GRPO.replace("micro_train_batch_size_per_gpu", "micro_train_batch_size_per_gpus")).problems
    assert [(item.kind, item.values["suggestion"]) for item in problems] == [
        ("unknown-key", "trainer.micro_train_batch_size_per_gpu")
    ]


def test_a_script(launched_script):
    (opened,) = launched_script(SCRIPT)
    found = opened.reading.job
    assert (found.model, found.hardware.gpus, found.micro_batch_size) == ("Qwen/Qwen2.5-1.5B-Instruct", 4, 64)
    assert not opened.reading.problems


@pytest.fixture
def launched_script(tmp_path):
    from gpulint.launchers.reading import open_jobs, recognise_file
    from gpulint.settings.settings import Settings

    def read_script(text):
        path = tmp_path / "run.sh"
        path.write_text(text)
        return open_jobs(recognise_file(str(path)), Settings(root=str(tmp_path))).opened

    return read_script
