"""Job changes in the words of verl: keys of a YAML file, or overrides on a command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.dotted_edits import Vocabulary, said_in
from .filling import ACTOR, MODEL, REF, ROLLOUT

if TYPE_CHECKING:
    from ..core.format import Reading
    from ..core.key_changes import Keys


def _megatron(reading: Reading) -> bool:
    return reading.job.framework == "megatron"


def _checkpointing(reading: Reading, value: str) -> Keys | None:
    if _megatron(reading):
        key = f"{ACTOR}.megatron.override_transformer_config.recompute_granularity"
        return {key: None if value == "none" else value} if value in ("full", "selective", "none") else None
    wanted: Keys = {f"{MODEL}.enable_gradient_checkpointing": value != "none"}
    if value == "offload":
        wanted[f"{MODEL}.enable_activation_offload"] = True
    return wanted if value in ("full", "none", "offload") else None


def _batch(reading: Reading, value: int) -> Keys | None:
    origin = reading.job.origins.get("micro_batch_size")
    if origin is not None and "max_token_len" in (origin.key or ""):
        length = reading.job.sequence_length or 0
        return {f"{ACTOR}.ppo_max_token_len_per_gpu": value * length // reading.job.parallelism.context}
    return {f"{ACTOR}.ppo_micro_batch_size_per_gpu": value}


def _method(reading: Reading, value: str) -> Keys | None:
    if _megatron(reading) or value not in ("full", "lora"):
        return None
    if value == "full":
        return {f"{MODEL}.lora_rank": 0}
    return {} if reading.job.method == "lora" else {f"{MODEL}.lora_rank": 32, f"{MODEL}.lora_alpha": 32}


def _sizes(name: str, fsdp: str = "") -> Any:
    def say(reading: Reading, value: int) -> Keys | None:
        if _megatron(reading):
            return {f"{ACTOR}.megatron.{name}": value}
        return {f"{ACTOR}.{fsdp}": value} if fsdp else None

    return say


def _policy_offload(reading: Reading, value: bool) -> Keys | None:
    section = f"{ACTOR}.megatron" if _megatron(reading) else f"{ACTOR}.fsdp_config"
    return {f"{section}.param_offload": value, f"{section}.optimizer_offload": value}


def _reference(reading: Reading, value: bool) -> Keys | None:
    section = "megatron" if _megatron(reading) else "fsdp_config"
    return {f"{REF}.{section}.param_offload": True} if not value else None


def _loss(_reading: Reading, value: str) -> Keys | None:
    """`use_fused_kernels` takes log-probabilities from hidden states in pieces."""
    return {f"{MODEL}.use_fused_kernels": value != "torch"} if value in ("torch", "liger", "chunked") else None


def _dtype(reading: Reading, value: str) -> Keys | None:
    """The dtype in which FSDP keeps the actor's weights and Adam's states."""
    word = {"bfloat16": "bf16", "float32": "fp32"}.get(value)
    return {f"{ACTOR}.fsdp_config.model_dtype": word} if word and not _megatron(reading) else None


def _sharding(reading: Reading, value: str) -> Keys | None:
    return {f"{ACTOR}.fsdp_config.fsdp_size": -1} if value == "full_shard" and not _megatron(reading) else None


VOCABULARY = Vocabulary(
    {
        "adapter.r": f"{MODEL}.lora_rank",
        "rl.vllm_gpu_memory_utilization": f"{ROLLOUT}.gpu_memory_utilization",
        "rl.vllm_sleep": f"{ROLLOUT}.free_cache_engine",
        "rl.completion_length": "data.max_response_length",
        "rl.generations": f"{ROLLOUT}.n",
        "liger_kernels": f"{MODEL}.use_liger",
    },
    {
        "activation_checkpointing": _checkpointing,
        "micro_batch_size": _batch,
        "method": _method,
        "parallelism.tensor": _sizes("tensor_model_parallel_size"),
        "parallelism.pipeline": _sizes("pipeline_model_parallel_size"),
        "parallelism.context": _sizes("context_parallel_size", "ulysses_sequence_parallel_size"),
        "parallelism.expert": _sizes("expert_model_parallel_size"),
        "parallelism.fsdp.offload": lambda _reading, value: {f"{ACTOR}.fsdp_config.offload_policy": value},
        "loss.kernel": _loss,
        "weights.dtype": _dtype,
        "parallelism.fsdp.sharding": _sharding,
        "rl.policy_offload": _policy_offload,
        "rl.reference_model": _reference,
    },
    total=f"{ACTOR}.ppo_mini_batch_size",
)


describe, edits = said_in(VOCABULARY)
