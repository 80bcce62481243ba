import pytest

from gpulint.formats.core.format import NoJobError
from gpulint.formats.core.registry import recognise
from gpulint.source.read import parse

from .origins import INFERENCE, TRAINING, missing

TRAIN = """\
model:
  model_name: Qwen/Qwen2.5-7B
  model_max_length: 4096
  torch_dtype_str: bfloat16
training:
  trainer_type: TRL_SFT
  per_device_train_batch_size: 2
  gradient_accumulation_steps: 4
  optimizer: adamw_torch_fused
fsdp:
  enable_fsdp: true
  sharding_strategy: HYBRID_SHARD
  auto_wrap_policy: TRANSFORMER_BASED_WRAP
  transformer_layer_cls: Qwen2DecoderLayer
"""
LORA = """\
model: {model_name: Qwen/Qwen2.5-7B}
training: {trainer_type: TRL_DPO, use_peft: true}
peft: {q_lora: true, lora_r: 32, lora_target_modules: [q_proj, v_proj]}
"""


@pytest.fixture
def oumi(bench):
    return bench("oumi")


def test_recognition():
    assert recognise(parse(TRAIN, "a.yaml", "yaml")).name == "oumi"
    assert recognise(parse("model: {name: x}\ntraining: {epochs: 1}\n", "a.yaml", "yaml")) is None


def test_training(oumi):
    job = oumi.job(TRAIN)
    assert (job.model, job.weights.dtype, job.sequence_length) == ("Qwen/Qwen2.5-7B", "bfloat16", 4096)
    assert (job.micro_batch_size, job.gradient_accumulation_steps) == (2, 4)
    assert (job.activation_checkpointing, job.precision.autocast) == ("none", None)
    assert job.origins["optimizer.name"].key == "training.optimizer"
    fsdp = job.parallelism.fsdp
    assert (fsdp.sharding, fsdp.wrap, fsdp.layer_classes) == ("hybrid_shard", "transformer", ["Qwen2DecoderLayer"])
    assert fsdp.upcast_trainable is False
    assert missing(job, TRAINING) == []


def test_what_oumi_s_fsdp_does_where_the_section_is_silent(oumi):
    """oumi/core/configs/params/fsdp_params.py: size-based wrapping of 100,000 parameters, torch's own prefetch."""
    fsdp = oumi.job(TRAIN.partition("  sharding_strategy")[0]).parallelism.fsdp
    assert (fsdp.wrap, fsdp.min_num_params, fsdp.backward_prefetch) == ("size", 100_000, "BACKWARD_PRE")
    assert fsdp.cpu_ram_efficient_loading is True


def test_accelerate_checkpoints_what_oumi_shards(oumi):
    text = TRAIN.replace("training:\n", "training:\n  enable_gradient_checkpointing: true\n")
    inside = oumi.job(text)
    assert (inside.parallelism.fsdp.checkpoints_inside, inside.reentrant) == (True, False)
    outside = oumi.job(text.replace("enable_fsdp: true", "enable_fsdp: false"))
    assert (outside.activation_checkpointing, outside.parallelism.fsdp) == ("full", None)


def test_mixed_precision_makes_fsdp_upcast(oumi):
    job = oumi.job(TRAIN.replace("training:\n", "training:\n  mixed_precision_dtype: bf16\n"))
    assert (job.precision.autocast, job.parallelism.fsdp.upcast_trainable) == ("bfloat16", True)


def test_qlora_with_dpo(oumi):
    job = oumi.job(LORA)
    assert (job.objective, job.method, job.adapter.r) == ("dpo", "lora", 32)
    assert (job.weights.quantization.method, job.rl.reference_model) == ("bnb-fp4", False)
    assert job.parallelism.fsdp is None
    assert missing(job, TRAINING) == []


def test_inference(oumi):
    model = "model: {model_name: Qwen/Qwen2.5-7B, model_max_length: 8192}\n"
    text = model + "generation: {max_new_tokens: 1024}\nengine: VLLM\n"
    job = oumi.job(text, gpus=4)
    assert (job.kind, job.inference.engine, job.parallelism.tensor) == ("inference", "vllm", 4)
    assert (job.inference.max_model_len, job.inference.gpu_memory_utilization) == (8192, 0.9)
    native = oumi.job(text.replace("VLLM", "NATIVE"))
    assert (native.inference.prompt_length, native.inference.new_tokens) == (7168, 1024)
    assert missing(native, [path for path in INFERENCE if path != "versions"]) == []


def test_the_samples_of_an_evaluation_decide_its_prompts(oumi):
    text = "model: {model_name: Qwen/Qwen2.5-7B, model_max_length: 131072}\ngeneration: {batch_size: 4}\n"
    task = "tasks: [{evaluation_backend: lm_harness, task_name: mmlu}]\n"
    assert oumi.job(text).inference.prompt_length == 131072 - 1024
    assert (oumi.job(text + task).inference.prompt_length, oumi.job(text + task).inference.batch_size) == (None, 4)


@pytest.mark.parametrize("engine", ["OPENAI", "REMOTE_VLLM", "LLAMACPP"])
def test_no_job(oumi, engine):
    with pytest.raises(NoJobError):
        oumi.read(f"model: {{model_name: x}}\ngeneration: {{}}\nengine: {engine}\n")


def test_keys(oumi):
    (problem,) = oumi.problems(TRAIN.replace("  optimizer:", "  optimiser:"), "unknown-key")
    assert (problem.values["treatment"], problem.values["spelling"], problem.span.line) == ("refused", "optimizer", 9)
    assert oumi.problems(TRAIN + LORA.partition("\n")[2].partition("\n")[2], "unknown-key") == []


@pytest.mark.parametrize(
    ("changes", "path", "value"),
    [
        ({"activation_checkpointing": "full"}, "activation_checkpointing", "full"),
        ({"micro_batch_size": 1}, "micro_batch_size", 1),
        ({"sequence_length": 1024}, "sequence_length", 1024),
        ({"method": "lora"}, "adapter.r", 16),
        ({"method": "lora", "weights.quantization.method": "bnb-nf4"}, "weights.quantization.method", "bnb-nf4"),
        ({"optimizer.name": "adamw_8bit"}, "optimizer.name", "adamw_8bit"),
        ({"parallelism.fsdp.offload": True}, "parallelism.fsdp.offload", True),
    ],
)
def test_edits(oumi, changes, path, value):
    _, job = oumi.change(TRAIN, changes)
    assert job.get(path) == value
