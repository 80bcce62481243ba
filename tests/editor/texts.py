"""Configs as people have them open."""

AXOLOTL = """\
base_model: NousResearch/Meta-Llama-3-8B
# gpulint: gpu=h100-80gb gpus=1
adapter: lora
lora_r: 16
lora_target_linear: true
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 2048
micro_batch_size: 2
optimizer: adamw_torch
gradient_checkpointing: true
bf16: true
learning_rate: 0.0002
output_dir: out
"""

DEEPSPEED = """\
{
  "train_micro_batch_size_per_gpu": 2,
  "bf16": {"enabled": true},
  "zero_optimization": {
    "stage": 2,
    "overlap_comm": true
  }
}
"""

SCRIPT = """\
#!/bin/bash
# gpulint: gpu=h100-80gb
vllm serve NousResearch/Meta-Llama-3-8B \\
  --max-model-len 8192 \\
  --gpu-memory-utilization 0.9
"""

SKYRL = """\
trainer:
  strategy: fsdp2
  algorithm:
    advantage_estimator: grpo
  placement:
    policy_num_gpus_per_node: 4
  policy:
    model:
      path: Qwen/Qwen2.5-1.5B-Instruct
    sequence_parallel_size: 2
"""
