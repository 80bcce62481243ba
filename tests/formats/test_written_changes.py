"""Every change that suggestions make, in the words of every training format that has words for it.

The edited file, read again, must be the changed job: `SAID` lists what each format says, `UNSAID` what its upstream has
no key for.
"""

from __future__ import annotations

import pytest

from gpulint.formats.core.format import Project
from gpulint.formats.core.registry import find
from gpulint.rules.suggest.change import reread
from gpulint.source.read import parse

MODEL = "meta-llama/Llama-3.1-8B"

TEXTS = {
    "torchtitan": """[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 8
seq_len = 8192
[activation_checkpoint]
mode = "none"
""",
    "litgpt": f"""checkpoint_dir: checkpoints/{MODEL}
precision: 32-true
devices: 1
lora_r: 8
train: {{global_batch_size: 8, micro_batch_size: 8, max_seq_length: 8192}}
""",
    "megatron": """MODEL_ARGS:
  --num-layers: 16
  --hidden-size: 2048
  --num-attention-heads: 16
  --vocab-size: 50257
  --micro-batch-size: 8
  --global-batch-size: 64
  --seq-length: 8192
  --max-position-embeddings: 8192
  --bf16: true
""",
    "nemo": """trainer: {devices: 8, num_nodes: 1, precision: bf16}
model:
  micro_batch_size: 8
  global_batch_size: 64
  tensor_model_parallel_size: 1
  encoder_seq_length: 8192
  num_layers: 24
  hidden_size: 2048
  num_attention_heads: 16
  megatron_amp_O2: true
  tokenizer: {library: megatron, type: GPT2BPETokenizer}
  optim: {name: fused_adam}
""",
    "gpt_neox": """{
  "pipe-parallel-size": 1, "model-parallel-size": 1, "num-layers": 16, "hidden-size": 2048,
  "num-attention-heads": 8, "seq-length": 8192, "train-micro-batch-size-per-gpu": 8,
  "gradient-accumulation-steps": 1,
  "optimizer": {"type": "Adam", "params": {"lr": 0.0006}},
  "zero-optimization": {"stage": 0},
  "fp16": {"enabled": true}
}
""",
    "olmo": """model: {d_model: 2048, n_heads: 16, n_layers: 16, max_sequence_length: 8192, vocab_size: 50280}
optimizer: {name: adamw}
scheduler: {name: cosine_with_warmup}
max_duration: 10
global_train_batch_size: 64
device_train_microbatch_size: 8
precision: fp32
""",
    "llm_foundry": f"""max_seq_len: 8192
model: {{name: hf_causal_lm, pretrained_model_name_or_path: {MODEL}}}
train_loader: {{name: finetuning}}
optimizer: {{name: decoupled_adamw}}
global_train_batch_size: 64
device_train_microbatch_size: 8
precision: fp32
""",
    "nanotron": """parallelism: {dp: 8, tp: 1, pp: 1}
model:
  dtype: float32
  model_config: {hidden_size: 1024, num_hidden_layers: 8, num_attention_heads: 8, vocab_size: 50257}
tokens: {sequence_length: 8192, micro_batch_size: 8, batch_accumulation_per_replica: 1, train_steps: 10}
optimizer: {zero_stage: 0, accumulate_grad_in_fp32: false}
""",
    "oumi": f"""model: {{model_name: {MODEL}, model_max_length: 8192, torch_dtype_str: float32}}
training:
  trainer_type: TRL_SFT
  per_device_train_batch_size: 8
  gradient_accumulation_steps: 1
  enable_gradient_checkpointing: false
  optimizer: adamw_torch_fused
""",
    "ms_swift": f"""model: {MODEL}
tuner_type: full
torch_dtype: float32
per_device_train_batch_size: 8
gradient_accumulation_steps: 1
max_length: 8192
gradient_checkpointing: false
attn_impl: eager
""",
    "hf_trainer": f"""model_name_or_path: {MODEL}
per_device_train_batch_size: 8
gradient_accumulation_steps: 1
max_length: 8192
learning_rate: 1.0e-5
output_dir: out
gradient_checkpointing: false
""",
    "axolotl": f"""base_model: {MODEL}
micro_batch_size: 8
gradient_accumulation_steps: 1
sequence_len: 8192
gradient_checkpointing: false
optimizer: adamw_torch_fused
bf16: false
datasets: [{{path: a, type: alpaca}}]
""",
    "areal": f"""experiment_name: sft
cluster: {{n_nodes: 1, n_gpus_per_node: 8}}
actor:
  backend: "fsdp:d8"
  path: {MODEL}
  dtype: float32
  mb_spec: {{max_tokens_per_mb: 65536}}
  optimizer: {{type: adam}}
train_dataset: {{batch_size: 64, type: sft, max_length: 8192}}
""",
    "skyrl": f"""trainer:
  strategy: fsdp
  placement: {{policy_num_gpus_per_node: 8}}
  policy: {{model: {{path: {MODEL}}}}}
  micro_train_batch_size_per_gpu: 8
  policy_mini_batch_size: 16
  max_prompt_length: 4096
  gradient_checkpointing: false
generator:
  n_samples_per_prompt: 4
  sampling_params: {{max_generate_length: 4096}}
""",
    "autotrain": f"""task: llm-sft
base_model: {MODEL}
project_name: tuned
backend: local
data: {{path: rows, train_split: train, valid_split: null}}
params:
  block_size: 8192
  batch_size: 8
  gradient_accumulation: 1
  disable_gradient_checkpointing: true
  peft: false
""",
    "llamafactory": f"""model_name_or_path: {MODEL}
stage: sft
do_train: true
finetuning_type: full
template: llama3
cutoff_len: 8192
disable_gradient_checkpointing: true
per_device_train_batch_size: 8
gradient_accumulation_steps: 1
output_dir: out
""",
}

MICRO = {"micro_batch_size": 2, "gradient_accumulation_steps": 4}
LENGTH = {"sequence_length": 4096}
FULL = {"activation_checkpointing": "full"}
AUTOCAST = {"precision.autocast": "bfloat16"}
BF16 = {"weights.dtype": "bfloat16"}
EIGHT = {"optimizer.name": "adamw_8bit"}
PAGED = {"optimizer.name": "paged_adamw_8bit"}
ZERO2 = {"parallelism.zero.stage": 2}
ZERO3 = {"parallelism.zero.stage": 3}
OFFLOAD = {**ZERO3, "parallelism.zero.offload_optimizer.device": "cpu"}
ALL = {**OFFLOAD, "parallelism.zero.offload_parameters.device": "cpu"}
SHARD = {"parallelism.fsdp.sharding": "full_shard"}
LORA = {"method": "lora"}
QLORA = {"method": "lora", "weights.quantization.method": "bnb-nf4"}
LIGER = {"loss.kernel": "liger"}
SDPA = {"attention": "sdpa"}

EVERY = [MICRO, LENGTH, FULL, AUTOCAST, BF16, EIGHT, PAGED, ZERO2, ZERO3, OFFLOAD, ALL, SHARD, LORA, QLORA, LIGER, SDPA]

UNSAID = {
    # PyTorch's own optimizers and FSDP2, no adapters; attention and loss are the model's
    "torchtitan": [AUTOCAST, EIGHT, PAGED, ZERO2, ZERO3, OFFLOAD, ALL, LORA, QLORA, LIGER, SDPA],
    # another script for LoRA; shards by itself over several devices; no key of checkpointing
    "litgpt": [FULL, ZERO2, ZERO3, OFFLOAD, ALL, SHARD, LORA, QLORA, LIGER, SDPA],
    "megatron": [AUTOCAST, BF16, EIGHT, PAGED, OFFLOAD, ALL, LORA, QLORA, LIGER, SDPA],
    "nemo": [AUTOCAST, BF16, EIGHT, PAGED, ZERO2, ZERO3, OFFLOAD, ALL, SHARD, LORA, QLORA, LIGER, SDPA],
    "gpt_neox": [AUTOCAST, BF16, PAGED, SHARD, LORA, QLORA, LIGER, SDPA],
    "olmo": [BF16, EIGHT, PAGED, ZERO2, ZERO3, OFFLOAD, ALL, LORA, QLORA, LIGER],
    "llm_foundry": [EIGHT, PAGED, ZERO2, ZERO3, OFFLOAD, ALL, QLORA, LIGER],
    "nanotron": [AUTOCAST, EIGHT, PAGED, ZERO2, ZERO3, OFFLOAD, ALL, SHARD, LORA, QLORA, LIGER, SDPA],
    "oumi": [],
    "ms_swift": [],
    "hf_trainer": [LIGER],  # TRL's loss goes in tiles by itself
    "axolotl": [],
    # FSDP2 over weights in one dtype with PyTorch's Adam; nothing is quantised
    "areal": [AUTOCAST, EIGHT, PAGED, ZERO2, ZERO3, OFFLOAD, ALL, SHARD, QLORA, LIGER],
    # FSDP2 over float32 weights with PyTorch's Adam; rows are a prompt and an answer; nothing is quantised
    "skyrl": [LENGTH, AUTOCAST, BF16, EIGHT, PAGED, ZERO2, ZERO3, OFFLOAD, ALL, SHARD, QLORA, LIGER],
    # loads in float32 with its own transformers, through SDPA; launched with ZeRO-3 or plainly
    "autotrain": [BF16, ZERO2, OFFLOAD, ALL, SHARD, LIGER, SDPA],
    "llamafactory": [],
}
"""What upstream has no words for, or another program."""

WORDS = {
    ("megatron", "parallelism.zero.stage"): None,
    ("llamafactory", "weights.dtype"): None,  # the checkpoint's, as trained weights then are, too
    ("gpt_neox", "optimizer.name"): "adamw_bnb_8bit",
    ("litgpt", "optimizer.name"): {"adamw_8bit": "adamw_bnb_8bit"},
}


def opened(name):
    suffix = "toml" if name == "torchtitan" else "yaml"
    project = Project("/nowhere", None, 1 if name == "litgpt" else 8, None, lambda *_: None)
    return find(name).read(parse(TEXTS[name], f"config.{suffix}", suffix), project), project


CASES = [(name, changes) for name in TEXTS for changes in EVERY]


@pytest.mark.parametrize(("name", "changes"), CASES, ids=lambda value: str(value))
def test_a_change_is_written_or_upstream_has_no_word_for_it(name, changes):
    reading, project = opened(name)
    form = find(name)
    edits = form.edits(reading, changes)
    if changes in UNSAID[name]:
        assert edits is None
        return
    assert edits
    assert form.describe(reading, changes)
    after = reread(reading, project, edits)
    assert after is not None
    for path, value in changes.items():
        words = WORDS.get((name, path), value)
        expected = words.get(value, value) if isinstance(words, dict) else words
        assert after.job.get(path) == expected, path
    if name == "megatron" and changes in (ZERO2, ZERO3):
        assert (
            after.job.parallelism.fsdp.sharding == {2: "shard_grad_op", 3: "full_shard"}[next(iter(changes.values()))]
        )
