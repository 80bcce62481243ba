"""Job changes in the words of LLM Foundry, below `parameters` in an mcli run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.dotted_edits import Vocabulary, said_in

if TYPE_CHECKING:
    from ..core.format import Reading
    from ..core.key_changes import Keys


def _spelled(reading: Reading, key: str) -> str:
    return f"parameters.{key}" if reading.config.root.find("parameters.model") is not None else key


def _checkpointing(_reading: Reading, value: str) -> Keys | None:
    if value not in ("none", "full", "offload"):
        return None
    return {
        "fsdp_config.activation_checkpointing": value != "none",
        "fsdp_config.activation_cpu_offload": value == "offload",
    }


def _sharding(_reading: Reading, value: str) -> Keys | None:
    known = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard")
    return {"fsdp_config.sharding_strategy": value.upper()} if value in known else None


def _method(reading: Reading, value: str) -> Keys | None:
    """PEFT over a model of the hub; MPT from dimensions takes no adapter."""
    if value == "full":
        return {"model.peft_config": None}
    if value != "lora" or not isinstance(reading.job.model, str):
        return None
    if reading.job.method == "lora":
        return {}
    adapter = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 16, "lora_alpha": 32, "target_modules": "all-linear"}
    return {"model.peft_config": adapter}


def _rank(reading: Reading, value: int) -> Keys | None:
    return {"model.peft_config.r": value} if reading.job.adapter is not None else None


def _dtype(_reading: Reading, value: str) -> Keys | None:
    return {"precision": "bf16"} if value == "bfloat16" else None


def _autocast(_reading: Reading, value: str | None) -> Keys | None:
    word = {"bfloat16": "amp_bf16", "float16": "amp_fp16", None: "fp32"}.get(value)
    return {"precision": word} if word else None


def _attention(reading: Reading, value: str) -> Keys | None:
    if isinstance(reading.job.model, str):
        return {"model.use_flash_attention_2": value == "flash_attention_2"} if value != "eager" else None
    word = {"flash_attention_2": "flash", "eager": "torch"}.get(value)
    return {"model.attn_config.attn_impl": word} if word else None


def _evaluation(reading: Reading, value: int) -> Keys | None:
    return {"device_eval_batch_size": value} if reading.job.evaluation.micro_batch_size else None


VOCABULARY = Vocabulary(
    {"micro_batch_size": "device_train_microbatch_size", "sequence_length": "max_seq_len"},
    {
        "activation_checkpointing": _checkpointing,
        "parallelism.fsdp.sharding": _sharding,
        "method": _method,
        "adapter.r": _rank,
        "weights.dtype": _dtype,
        "precision.autocast": _autocast,
        "attention": _attention,
        "evaluation.micro_batch_size": _evaluation,
    },
    total="global_train_batch_size",
    spelled=_spelled,
)

describe, edits = said_in(VOCABULARY)
