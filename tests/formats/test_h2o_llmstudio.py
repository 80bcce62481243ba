import pytest

from gpulint.formats.core.format import NoJobError
from gpulint.formats.core.registry import recognise
from gpulint.source.read import parse

from .origins import TRAINING, missing

CONFIG = """\
architecture:
  backbone_dtype: int4
  gradient_checkpointing: true
environment:
  gpus: ['0', '1']
  mixed_precision: true
  mixed_precision_dtype: bfloat16
  use_deepspeed: false
llm_backbone: meta-llama/Llama-3.1-8B
problem_type: text_causal_language_modeling
tokenizer:
  max_length: 1024
training:
  batch_size: 4
  grad_accumulation: 2
  lora: true
  lora_r: 8
  lora_target_modules: ''
  optimizer: AdamW8bit
"""


@pytest.fixture
def h2o(bench):
    return bench("h2o_llmstudio")


def test_an_experiment(h2o):
    assert recognise(parse(CONFIG, "a.yaml", "yaml")).name == "h2o_llmstudio"
    job = h2o.job(CONFIG)
    assert (job.weights.quantization.method, job.precision.autocast, job.hardware.gpus) == ("bnb-nf4", "bfloat16", 2)
    assert (job.micro_batch_size, job.gradient_accumulation_steps, job.sequence_length) == (4, 2, 1024)
    assert (job.adapter.r, job.adapter.targets, job.optimizer.name) == (8, "all-linear", "adamw_8bit")
    assert missing(job, TRAINING) == []


def test_deepspeed_and_full_weights(h2o):
    text = CONFIG.replace("int4", "bfloat16").replace(
        "use_deepspeed: false", "use_deepspeed: true\n  deepspeed_method: ZeRO3"
    )
    job = h2o.job(text.replace("lora: true", "lora: false"))
    assert (job.method, job.weights.dtype, job.parallelism.zero.stage) == ("full", "bfloat16", 3)
    assert job.parallelism.zero.reduce_bucket_size == 1_000_000


def test_other_problems(h2o):
    assert h2o.job(CONFIG.replace("text_causal_language_modeling", "text_dpo_modeling")).objective == "dpo"
    assert h2o.job(CONFIG.replace("language_modeling", "classification_modeling")).objective == "reward"
    with pytest.raises(NoJobError, match="CPU"):
        h2o.read(CONFIG.replace("['0', '1']", "[]"))


def test_keys(h2o):
    (problem,) = h2o.problems(CONFIG.replace("batch_size", "batchsize"), "unknown-key")
    assert (problem.values["spelling"], problem.values["treatment"], problem.span.line) == (
        "batch_size",
        "ignored",
        14,
    )


@pytest.mark.parametrize(
    ("changes", "path", "value"),
    [
        ({"micro_batch_size": 1}, "micro_batch_size", 1),
        ({"activation_checkpointing": "none"}, "activation_checkpointing", "none"),
        ({"method": "full"}, "method", "full"),
        ({"weights.quantization.method": "bnb-int8"}, "weights.quantization.method", "bnb-int8"),
        ({"parallelism.zero.stage": 2}, "parallelism.zero.stage", 2),
    ],
)
def test_edits(h2o, changes, path, value):
    _, job = h2o.change(CONFIG, changes)
    assert job.get(path) == value


def test_hosted_training_is_no_job(bench):
    text = 'model = "Qwen/Qwen3.5-4B"\nbatch_size = 128\n[[env]]\nid = "a/b"\n'
    assert recognise(parse(text, "a.toml", "toml")).name == "prime_rl"
    with pytest.raises(NoJobError, match="hosted"):
        bench("prime_rl", "toml").read(text)
