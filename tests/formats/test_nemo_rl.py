import pytest

from gpulint.formats.core.registry import recognise
from gpulint.source.read import parse

from .origins import TRAINING, missing

GRPO = """\
defaults: ../../grpo_math_1B.yaml
grpo:
  num_generations_per_prompt: 32
policy:
  model_name: meta-llama/Llama-3.1-8B-Instruct
  train_micro_batch_size: 2
  max_total_sequence_length: 4096
  generation:
    vllm_cfg:
      gpu_memory_utilization: 0.7
cluster:
  gpus_per_node: 8
  num_nodes: 2
"""
MEGATRON = GRPO.replace(
    "  generation:\n",
    "  dtensor_cfg: {enabled: false}\n  megatron_cfg:\n    enabled: true\n    tensor_model_parallel_size: 4\n"
    "    pipeline_model_parallel_size: 2\n    activation_checkpointing: true\n  generation:\n",
)


@pytest.fixture
def nemo(bench):
    return bench("nemo_rl")


def test_recognition():
    assert recognise(parse(GRPO, "a.yaml", "yaml")).name == "nemo_rl"
    assert recognise(parse("policy: {type: act}\n", "a.yaml", "yaml")) is None


def test_what_a_shipped_config_adds(nemo):
    job = nemo.job(GRPO)
    assert (job.hardware.gpus, job.hardware.nodes, job.objective) == (16, 2, "grpo")
    assert (job.weights.dtype, job.precision.autocast) == ("float32", "bfloat16")
    assert (job.rl.vllm, job.rl.vllm_gpu_memory_utilization, job.rl.generations) == ("colocate", 0.7, 32)
    assert (job.rl.vllm_sleep, job.rl.policy_offload) == (True, True)
    assert (job.packing, job.sequence_length, job.micro_batch_size) == (True, 4096, 2)
    assert (job.rl.completion_length, job.rl.prompt_length) == (4096, 4096)
    assert job.gradient_accumulation_steps == 512 // (2 * 16)
    assert "as nemo_rl 0.6.0 ships it" in job.origins["packing"].file
    assert job.origins["sequence_length"].file == "config.yaml"
    assert missing(job, TRAINING) == []


def test_a_config_of_the_project_wins_over_a_shipped_one(nemo):
    base = "policy: {train_micro_batch_size: 1, precision: float32, sequence_packing: {enabled: false}}\n"
    text = GRPO.replace("  train_micro_batch_size: 2\n", "")
    reading = nemo.read(text, files={"../../grpo_math_1B.yaml": base})
    assert reading.job.micro_batch_size == 1
    assert reading.job.origins["micro_batch_size"].file == "../../grpo_math_1B.yaml"
    assert list(reading.references) == ["defaults: ../../grpo_math_1B.yaml"]


def test_a_loop_of_configs_ends(nemo):
    reading = nemo.read("defaults: a.yaml\npolicy: {model_name: x/y, train_micro_batch_size: 1}\n",
                        files={"a.yaml": "defaults: a.yaml\npolicy: {precision: float32}\n"})  # fmt: skip
    assert reading.job.model == "x/y"


def test_a_missing_base_is_reported(nemo):
    (problem,) = nemo.problems(GRPO.replace("grpo_math_1B", "mine"), "unresolved-reference")
    assert problem.values["reference"] == "../../mine.yaml"
    assert problem.span.line == 1


def test_megatron(nemo):
    job = nemo.job(MEGATRON)
    assert (job.framework, job.weights.dtype, job.precision.master_weights) == ("megatron", "bfloat16", True)
    assert (job.parallelism.tensor, job.parallelism.pipeline) == (4, 2)
    assert (job.parallelism.zero.library, job.parallelism.zero.stage) == ("megatron", 1)
    assert (job.activation_checkpointing, job.precision.gradients) == ("full", "bfloat16")
    assert missing(job, [path for path in TRAINING if path != "reentrant"]) == []


def test_generation_on_gpus_of_its_own(nemo):
    text = GRPO.replace(
        "  generation:\n",
        "  generation:\n    colocated: {enabled: false, resources: {num_nodes: 1, gpus_per_node: 8}}\n",
    )
    job = nemo.job(text)
    assert (job.rl.vllm, job.hardware.gpus) == ("server", 8)


def test_ppo_has_its_critic_elsewhere(nemo):
    job = nemo.job(GRPO.replace("grpo_math_1B", "ppo_math_1B").replace("grpo:", "ppo:"))
    assert (job.objective, job.rl.value_model) == ("ppo", "apart")


def test_keys(nemo):
    text = GRPO.replace("train_micro_batch_size", "train_micro_batchsize")
    (problem,) = nemo.problems(text, "unknown-key")
    assert (problem.key, problem.span.line) == ("policy.train_micro_batchsize", 6)
    assert problem.values["spelling"] == "train_micro_batch_size"
    assert nemo.problems(GRPO, "unknown-key") == []


@pytest.mark.parametrize("text", [GRPO, MEGATRON])
@pytest.mark.parametrize(
    ("changes", "path", "value"),
    [
        ({"activation_checkpointing": "none"}, "activation_checkpointing", "none"),
        ({"micro_batch_size": 1}, "micro_batch_size", 1),
        ({"sequence_length": 1024}, "sequence_length", 1024),
        ({"method": "lora"}, "adapter.r", 16),
        ({"parallelism.tensor": 2}, "parallelism.tensor", 2),
        ({"rl.vllm_gpu_memory_utilization": 0.4}, "rl.vllm_gpu_memory_utilization", 0.4),
    ],
)
def test_edits(nemo, text, changes, path, value):
    _, job = nemo.change(text, changes)
    assert job.get(path) == value


def test_what_a_backend_cannot_say(nemo):
    assert nemo.change(GRPO, {"parallelism.pipeline": 2}) is None
    assert nemo.change(MEGATRON, {"parallelism.fsdp.offload": True}) is None
