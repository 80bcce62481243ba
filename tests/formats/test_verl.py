import pytest

from gpulint.formats.core.format import NoJobError
from gpulint.formats.core.registry import recognise
from gpulint.run.check import check
from gpulint.settings.settings import Settings
from gpulint.source.read import parse

from .origins import TRAINING, missing

GRPO = """\
data:
  max_prompt_length: 1024
  max_response_length: 3072
actor_rollout_ref:
  model:
    path: Qwen/Qwen2.5-7B
  actor:
    ppo_mini_batch_size: 128
    ppo_micro_batch_size_per_gpu: 2
    use_kl_loss: true
    fsdp_config:
      param_offload: true
      optimizer_offload: true
  rollout:
    name: vllm
    n: 8
    gpu_memory_utilization: 0.6
algorithm:
  adv_estimator: grpo
trainer:
  n_gpus_per_node: 8
  nnodes: 2
"""


@pytest.fixture
def verl(bench):
    return bench("verl")


def test_recognition():
    assert recognise(parse(GRPO, "a.yaml", "yaml")).name == "verl"
    assert recognise(parse("_target_: torch.nn.Linear\n", "a.yaml", "yaml")) is None


def test_grpo(verl):
    job = verl.job(GRPO)
    assert (job.hardware.gpus, job.hardware.nodes, job.objective) == (16, 2, "grpo")
    assert (job.sequence_length, job.micro_batch_size, job.gradient_accumulation_steps) == (4096, 2, 32)
    assert (job.weights.dtype, job.precision.autocast) == ("float32", "bfloat16")
    assert (job.rl.reference_model, job.rl.policy_offload, job.rl.vllm_sleep) == (True, True, True)
    assert (job.rl.generations, job.rl.vllm_gpu_memory_utilization) == (8, 0.6)
    assert job.activation_checkpointing == "full"
    assert job.origins["activation_checkpointing"].kind == "default"
    assert job.origins["rl.vllm_gpu_memory_utilization"].kind == "file"
    assert missing(job, TRAINING) == []


def test_ppo_trains_a_critic_beside(verl):
    job = verl.job(GRPO.replace("grpo", "gae"))
    assert (job.objective, job.rl.value_model, job.rl.reward_model) == ("ppo", "model", "none")


def test_a_reference_in_main_memory(verl):
    text = GRPO.replace("  rollout:\n", "  ref: {fsdp_config: {param_offload: true}}\n  rollout:\n")
    assert verl.job(text).rl.reference_model is False
    assert verl.job(GRPO.replace("use_kl_loss: true", "use_kl_loss: false")).rl.reference_model is False


def test_dynamic_batches_and_sequence_parallel(verl):
    text = GRPO.replace("  actor:\n", "  actor:\n    use_dynamic_bsz: true\n    ulysses_sequence_parallel_size: 2\n")
    job = verl.job(text)
    assert (job.parallelism.context, job.micro_batch_size) == (2, 16384 * 2 // 4096)


def test_megatron_with_its_optimizer_in_main_memory(verl):
    actor = (
        "  actor:\n    strategy: megatron\n    optim: {override_optimizer_config: {optimizer_cpu_offload: true, "
        "optimizer_offload_fraction: 0.5}}\n"
    )
    offload = verl.job(GRPO.replace("  actor:\n", actor)).parallelism.zero.offload_optimizer
    assert (offload.device, offload.ratio) == ("cpu", 0.5)


def test_megatron(verl):
    text = GRPO.replace(
        "  actor:\n", "  actor:\n    strategy: megatron\n    megatron: {tensor_model_parallel_size: 4}\n"
    )
    job = verl.job(text)
    assert (job.framework, job.parallelism.tensor, job.weights.dtype) == ("megatron", 4, "bfloat16")
    assert (job.parallelism.zero.stage, job.activation_checkpointing) == (1, "none")
    assert missing(job, [path for path in TRAINING if path != "reentrant"]) == []


def test_a_part_is_no_job(verl):
    with pytest.raises(NoJobError, match="part"):
        verl.read("_target_: verl.workers.config.FSDPActorConfig\nstrategy: fsdp\n")


def test_misspelt_keys_of_a_file(verl):
    (problem,) = verl.problems(GRPO.replace("gpu_memory_utilization", "gpu_memory_utilisation"), "unknown-key")
    assert (problem.values["spelling"], problem.span.line) == ("gpu_memory_utilization", 17)
    assert verl.problems(GRPO + "my_section: {a: 1}\n", "unknown-key") == []


@pytest.mark.parametrize(
    ("changes", "path", "value"),
    [
        ({"activation_checkpointing": "none"}, "activation_checkpointing", "none"),
        ({"micro_batch_size": 1}, "micro_batch_size", 1),
        ({"rl.vllm_gpu_memory_utilization": 0.4}, "rl.vllm_gpu_memory_utilization", 0.4),
        ({"rl.reference_model": False}, "rl.reference_model", False),
        ({"method": "lora"}, "adapter.r", 32),
        ({"parallelism.context": 2}, "parallelism.context", 2),
        ({"parallelism.fsdp.offload": True}, "parallelism.fsdp.offload", True),
    ],
)
def test_edits(verl, changes, path, value):
    _, job = verl.change(GRPO, changes)
    assert job.get(path) == value


def test_overrides_on_a_command_line(tmp_path):
    (tmp_path / "run.sh").write_text(
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \\\n"
        "  actor_rollout_ref.model.path=Qwen/Qwen2.5-7B actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 \\\n"
        "  actor_rollout_ref.actor.use_kl_los=True +actor_rollout_ref.actor.mine=1 trainer.n_gpus_per_node=4\n"
    )
    report = check([str(tmp_path / "run.sh")], Settings(root=str(tmp_path)))
    (finding,) = [item for item in report.findings if "does not know" in item.message]
    assert "`actor_rollout_ref.actor.use_kl_los`" in finding.message
    assert (finding.location.span.line, finding.severity) == (3, "error")
