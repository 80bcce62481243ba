"""LLM Foundry, OLMo and nanotron configs: models, precision, sharding, batches, keys and edits."""

import pytest

from gpulint.formats.core.format import NoJobError
from gpulint.formats.core.registry import recognise
from gpulint.formats.native import llm_foundry, nanotron, olmo
from gpulint.source.edit.edit import apply
from gpulint.source.read import parse

from .conftest import read_as

FOUNDRY = """variables:
  length: 2048
max_seq_len: ${variables.length}
model:
  name: mpt_causal_lm
  d_model: 1024
  n_heads: 16
  n_layers: 12
  vocab_size: 50368
tokenizer: {name: EleutherAI/gpt-neox-20b}
train_loader:
  name: text
optimizer: {name: decoupled_adamw, lr: 1.0e-4}
scheduler: {name: constant_with_warmup}
max_duration: 10ba
eval_interval: 10ba
global_train_batch_size: 256
device_train_microbatch_size: 8
device_eval_batch_size: 8
precision: amp_bf16
fsdp_config:
  sharding_strategy: FULL_SHARD
  mixed_precision: PURE
  activation_checkpointing: true
"""

OLMO = """run_name: small
model:
  d_model: 2048
  n_heads: 16
  n_layers: 16
  mlp_hidden_size: 16384
  weight_tying: false
  rope: true
  flash_attention: true
  attention_layer_norm: true
  norm_after: true
  activation_type: swiglu
  max_sequence_length: 4096
  vocab_size: 100278
  embedding_size: 100352
optimizer: {name: adamw}
scheduler: {name: cosine_with_warmup}
max_duration: 10
global_train_batch_size: 512
device_train_microbatch_size: 4
precision: amp_bf16
activation_checkpointing: one_in_four
fsdp:
  wrapping_strategy: by_block_and_size
  precision: mixed
"""

NANOTRON = """general: {project: debug, run: r, seed: 1}
model:
  dtype: bfloat16
  init_method: {std: 0.02}
  make_vocab_size_divisible_by: 128
  model_config:
    hidden_size: 1024
    intermediate_size: 4096
    is_llama_config: true
    num_attention_heads: 16
    num_hidden_layers: 12
    num_key_value_heads: 4
    tie_word_embeddings: true
    vocab_size: 50257
optimizer:
  accumulate_grad_in_fp32: true
  optimizer_factory: {name: adamW, torch_adam_is_fused: true}
  zero_stage: 1
parallelism:
  dp: 4
  pp: 1
  tp: 2
  tp_mode: REDUCE_SCATTER
tokenizer: {tokenizer_name_or_path: gpt2}
tokens:
  batch_accumulation_per_replica: 2
  micro_batch_size: 3
  sequence_length: 2048
  train_steps: 10
"""

FORMATS = {"llm_foundry": llm_foundry.FORMAT, "olmo": olmo.FORMAT, "nanotron": nanotron.FORMAT}
TEXTS = {"llm_foundry": FOUNDRY, "olmo": OLMO, "nanotron": NANOTRON}


read = read_as


def test_llm_foundry():
    reading = read("llm_foundry", FOUNDRY, gpus=8)
    job = reading.job
    assert reading.problems == []
    assert (job.model["model_type"], job.model["hidden_size"]) == ("mpt", 1024)
    assert (job.weights.dtype, job.precision.autocast) == ("float32", "bfloat16")
    assert job.parallelism.fsdp.mixed_precision.reduce_dtype == "bfloat16"
    assert job.parallelism.fsdp.sync_each_batch is True
    assert (job.micro_batch_size, job.gradient_accumulation_steps, job.sequence_length) == (8, 4, 2048)
    assert job.activation_checkpointing == "full"


def test_an_mcli_run_states_its_gpus():
    inner = "".join(f"  {line}\n" for line in FOUNDRY.splitlines())
    job = read("llm_foundry", f"image: x\ncompute:\n  gpus: 16\nparameters:\n{inner}").job
    assert job.hardware.gpus == 16
    assert job.origins["hardware.gpus"].key == "compute.gpus"
    assert job.sequence_length == 2048


def test_the_bert_example_of_the_same_company_is_another_program():
    text = "model: {name: hf_bert}\nmax_seq_len: 128\ntrain_loader: {name: text}\n"
    assert recognise(parse(text, "c.yaml", "yaml")) is None
    assert recognise(parse(text.replace("hf_bert", "hf_causal_lm"), "c.yaml", "yaml")).name == "llm_foundry"


def test_an_automatic_micro_batch_is_not_guessed():
    text = FOUNDRY.replace("microbatch_size: 8", "microbatch_size: auto")
    job = read("llm_foundry", text).job
    assert job.micro_batch_size is None
    assert "halves" in job.origins["micro_batch_size"].note


def test_a_run_of_a_shipped_yaml_is_said():
    text = "image: x\ncompute: {gpus: 8}\ncommand: cd llm-foundry/scripts && composer train/train.py a.yaml\n"
    with pytest.raises(NoJobError, match="repository"):
        read("llm_foundry", text)


def test_olmo():
    reading = read("olmo", OLMO, gpus=16)
    job = reading.job
    assert reading.problems == []
    assert (job.model["model_type"], job.model["intermediate_size"], job.model["vocab_size"]) == ("olmo2", 8192, 100352)
    assert (job.activation_checkpointing, job.checkpoint_every) == ("full", 4)
    assert job.gradient_accumulation_steps == 8
    assert (job.parallelism.fsdp.wrap, job.parallelism.fsdp.outer) == ("transformer", "separate")
    assert job.parallelism.fsdp.mixed_precision.reduce_dtype == "float32"
    assert job.parallelism.fsdp.sync_each_batch is True


def test_nanotron():
    reading = read("nanotron", NANOTRON)
    job = reading.job
    assert reading.problems == []
    assert job.hardware.gpus == 8
    assert (job.parallelism.tensor, job.parallelism.sequence) == (2, True)
    assert job.model["vocab_size"] == 50432
    assert (job.weights.dtype, job.precision.gradients, job.precision.master_weights) == ("bfloat16", "float32", True)
    assert (job.parallelism.zero.stage, job.micro_batch_size, job.gradient_accumulation_steps) == (1, 3, 2)


@pytest.mark.parametrize(
    ("name", "old", "new", "suggestion"),
    [
        ("llm_foundry", "global_train_batch_size", "global_train_batchsize", "global_train_batch_size"),
        ("olmo", "max_sequence_length", "max_sequence_len", "max_sequence_length"),
        ("nanotron", "  sequence_length", "  sequence_lenght", "sequence_length"),
    ],
)
def test_a_misspelt_key_is_refused(name, old, new, suggestion):
    text = TEXTS[name].replace(old, new)
    line = next(number for number, row in enumerate(text.splitlines(), 1) if new in row)
    (problem,) = [item for item in read(name, text).problems if item.kind == "unknown-key"]
    assert (problem.span.line, problem.values["spelling"]) == (line, suggestion)
    assert problem.values["treatment"] == "refused"


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llm_foundry", {"micro_batch_size": 4}),
        ("llm_foundry", {"activation_checkpointing": "offload"}),
        ("olmo", {"sequence_length": 2048}),
        ("olmo", {"checkpoint_every": 1}),
        ("nanotron", {"micro_batch_size": 1}),
        ("nanotron", {"activation_checkpointing": "full"}),
    ],
)
def test_changes_are_written_back(name, changes):
    reading = read(name, TEXTS[name])
    assert FORMATS[name].describe(reading, changes)
    changed = read(name, apply(TEXTS[name], FORMATS[name].edits(reading, changes))).job
    assert {path: changed.get(path) for path in changes} == changes


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_what_cannot_be_said_is_not_offered(name):
    assert FORMATS[name].edits(read(name, TEXTS[name]), {"liger_kernels": True}) is None
