"""The config formats by name, and which one a document is of.

A format is a module with a `FORMAT`, a schema and one row here. The row's keys decide which modules are
imported at all: a document that has none of them at its top is not of that format.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...source.document import Document
    from .format import Format

_TOP_KEYS: dict[str, frozenset[str]] = {
    "job": frozenset({"gpulint"}),
    "autotrain": frozenset({"task"}),
    "areal": frozenset({"allocation_mode", "actor"}),
    "skyrl": frozenset({"trainer"}),
    "axolotl": frozenset({"base_model"}),
    "litgpt": frozenset({"train"}),
    "torchtitan": frozenset({"model"}),
    "slime": frozenset(),
    "megatron": frozenset({"MODEL_ARGS", "num_layers"}),
    "nemo": frozenset({"model", "run", "tensor_model_parallel_size"}),
    "olmo": frozenset({"max_duration"}),
    "llm_foundry": frozenset({"max_seq_len", "parameters", "command"}),
    "nanotron": frozenset({"tokens"}),
    "gpt_neox": frozenset({"num_layers", "train_iters"}),
    "lingua": frozenset({"distributed"}),
    "mistral_finetune": frozenset({"model_id_or_path"}),
    "megatron_bridge": frozenset({"train"}),
    "trlx": frozenset({"method"}),
    "torchtune": frozenset({"model", "tokenizer", "checkpointer", "policy_model", "dataset"}),
    "llamafactory": frozenset(
        {"finetuning_type", "stage", "template", "infer_backend", "export_dir", "cutoff_len"}
    ),
    "nemo_automodel": frozenset({"step_scheduler", "model"}),
    "nemo_rl": frozenset({"policy", "generation", "defaults"}),
    "openrlhf": frozenset(),
    "megatron_swift": frozenset({"micro_batch_size", "global_batch_size", "tensor_model_parallel_size"}),
    "ms_swift": frozenset({"tuner_type", "train_type", "rlhf_type", "sft_type"}),
    "h2o_llmstudio": frozenset({"llm_backbone"}),
    "prime_rl": frozenset({"env", "orchestrator", "data"}),
    "verl": frozenset({"actor_rollout_ref", "rollout", "_target_"}),
    "verl_sft": frozenset({"data"}),
    "oumi": frozenset({"training", "generation", "tasks", "engine"}),
    "hf_trainer": frozenset(
        {
            "model_name_or_path", "per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate",
            "output_dir", "num_train_epochs", "bf16", "fp16",
        }
    ),
    "accelerate": frozenset({"compute_environment", "distributed_type"}),
    "deepspeed": frozenset(
        {
            "zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size", "fp16", "bf16",
            "steps_per_print", "zero_allow_untested_optimizer", "wall_clock_breakdown",
        }
    ),
    "sglang": frozenset(
        {
            "mem_fraction_static", "disable_radix_cache", "disaggregation_mode", "chunked_prefill_size", "tp_size",
            "cuda_graph_max_bs", "max_running_requests", "context_length", "schedule_conservativeness", "dp_size",
            "schedule_policy", "enable_dp_attention", "max_prefill_tokens", "ep_size",
        }
    ),
    "trtllm": frozenset({"kv_cache_config", "cuda_graph_config", "moe_config", "enable_attention_dp"}),
    "tgi": frozenset(),
    "lmdeploy": frozenset(),
    "llama_cpp": frozenset(),
    "vllm": frozenset(
        {
            "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "max_model_len", "max_num_seqs",
            "gpu_memory_utilization", "max_num_batched_tokens", "kv_cache_dtype", "enforce_eager",
            "enable_prefix_caching", "enable_chunked_prefill", "speculative_config", "compilation_config",
            "served_model_name", "enable_lora", "max_lora_rank", "swap_space", "cpu_offload_gb", "block_size",
            "enable_expert_parallel",
        }
    ),
}  # fmt: skip
"""Format name -> keys, dashes as underscores, of which its files have at least one at the top.

The first format that agrees wins.
"""

_MODULES: dict[str, str] = {
    "job": "job.format",
    "autotrain": "autotrain.format",
    "areal": "rl.areal",
    "skyrl": "rl.skyrl",
    "axolotl": "axolotl.format",
    "litgpt": "native.litgpt",
    "torchtitan": "torchtitan.format",
    "slime": "rl.slime",
    "megatron": "megatron.format",
    "nemo": "nemo.nemo",
    "olmo": "native.olmo",
    "llm_foundry": "native.llm_foundry",
    "nanotron": "native.nanotron",
    "gpt_neox": "megatron.gpt_neox",
    "lingua": "native.lingua",
    "mistral_finetune": "native.mistral_finetune",
    "megatron_bridge": "megatron.bridge",
    "trlx": "rl.trlx",
    "torchtune": "torchtune.format",
    "llamafactory": "llamafactory.format",
    "nemo_automodel": "nemo.automodel",
    "nemo_rl": "nemo.rl",
    "openrlhf": "rl.openrlhf",
    "megatron_swift": "ms_swift.megatron_swift",
    "ms_swift": "ms_swift.format",
    "h2o_llmstudio": "native.h2o_llmstudio",
    "prime_rl": "rl.prime_rl",
    "verl": "verl.format",
    "verl_sft": "verl.sft",
    "oumi": "oumi.format",
    "hf_trainer": "hf_trainer.format",
    "accelerate": "accelerate.format",
    "deepspeed": "deepspeed.format",
    "sglang": "serving.sglang",
    "trtllm": "serving.trtllm",
    "tgi": "serving.tgi",
    "lmdeploy": "serving.lmdeploy",
    "llama_cpp": "serving.llama_cpp",
    "vllm": "serving.vllm",
}
"""Format name -> its module below `formats`."""

FORMAT_NAMES: tuple[str, ...] = tuple(_TOP_KEYS)


def find(name: str) -> Format:
    """The format of that name. Raises KeyError for a name that is not in `FORMAT_NAMES`."""
    if name not in _TOP_KEYS:
        raise KeyError(name)
    format_: Format = import_module(f"..{_MODULES[name]}", __package__).FORMAT
    return format_


def recognise(document: Document) -> Format | None:
    """The format that `document` is of, judged by its first root; None for a file of no known format."""
    if not document.roots or not document.root.is_mapping:
        return None
    present = {str(entry.key.value).replace("-", "_") for entry in document.root.entries()}
    for name, keys in _TOP_KEYS.items():
        if not keys.isdisjoint(present):
            format_ = find(name)
            if format_.recognise(document):
                return format_
    return None
