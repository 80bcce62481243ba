"""Job changes in the words of Oumi configs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.dotted_edits import Vocabulary, said_in
from ..core.key_changes import OFFLOADS, ZERO

if TYPE_CHECKING:
    from ..core.format import Reading
    from ..core.key_changes import Keys


def _training(reading: Reading) -> bool:
    return reading.job.kind == "training"


def _checkpointing(_reading: Reading, value: str) -> Keys | None:
    return {"training.enable_gradient_checkpointing": value == "full"} if value in ("full", "none") else None


def _method(reading: Reading, value: str) -> Keys | None:
    if value == "full":
        return {"training.use_peft": False}
    if value != "lora":
        return None
    own = {} if reading.job.method == "lora" else {"peft.lora_r": 16, "peft.lora_alpha": 32}
    return {"training.use_peft": True, **own}


def _quantization(_reading: Reading, value: str | None) -> Keys | None:
    if value is None:
        return {"peft.q_lora": False}
    bits = {"bnb-nf4": 4, "bnb-int8": 8}.get(value)
    if bits is None:
        return None
    kind = {"peft.bnb_4bit_quant_type": "nf4"} if bits == 4 else {}
    return {"peft.q_lora": True, "peft.q_lora_bits": bits, **kind}


def _dtype(_reading: Reading, value: str) -> Keys | None:
    return {"model.torch_dtype_str": value}


def _fsdp(_reading: Reading, value: str) -> Keys | None:
    if value != "full_shard":
        return None
    return {"fsdp.enable_fsdp": True, "fsdp.sharding_strategy": "FULL_SHARD",
            "fsdp.auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}  # fmt: skip


def _batch(reading: Reading, value: int) -> Keys | None:
    return {"training.per_device_train_batch_size": value} if _training(reading) else None


def _zero(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """Oumi's DeepSpeed section, whose stages and devices are names of enums; FSDP goes."""
    stage = changes.get(f"{ZERO}stage", reading.job.get(f"{ZERO}stage"))
    if stage is None or not _training(reading):
        return None
    wanted: Keys = {"deepspeed.enable_deepspeed": True, "deepspeed.zero_stage": f"ZERO_{stage}"}
    wanted |= {f"deepspeed.{name}.device": changes[path].upper() for path, name in OFFLOADS.items() if path in changes}
    enabled = reading.config.root.find("fsdp.enable_fsdp")
    return {**wanted, "fsdp.enable_fsdp": False} if enabled is not None else wanted


def _loss(reading: Reading, value: str) -> Keys | None:
    takes = value == "liger" and _training(reading) and reading.job.objective in ("sft", "pretrain")
    return {"model.enable_liger_kernel": True} if takes else None


def _autocast(reading: Reading, value: str | None) -> Keys | None:
    """`mixed_precision_dtype` casts over weights of another dtype."""
    word = {"bfloat16": "BF16", "float16": "FP16", None: "NONE"}.get(value)
    return {"training.mixed_precision_dtype": word} if word and _training(reading) else None


VOCABULARY = Vocabulary(
    {
        "sequence_length": "model.model_max_length",
        "gradient_accumulation_steps": "training.gradient_accumulation_steps",
        "optimizer.name": "training.optimizer",
        "attention": "model.attn_implementation",
        "adapter.r": "peft.lora_r",
        "evaluation.micro_batch_size": "training.per_device_eval_batch_size",
        "parallelism.fsdp.offload": "fsdp.cpu_offload",
        "inference.max_model_len": "model.model_max_length",
        "inference.gpu_memory_utilization": "model.model_kwargs.gpu_memory_utilization",
        "inference.batch_size": "generation.batch_size",
        "inference.new_tokens": "generation.max_new_tokens",
        "rl.vllm_gpu_memory_utilization": "training.grpo.vllm_gpu_memory_utilization",
    },
    {
        "micro_batch_size": _batch,
        "activation_checkpointing": _checkpointing,
        "method": _method,
        "weights.quantization.method": _quantization,
        "weights.dtype": _dtype,
        "parallelism.fsdp.sharding": _fsdp,
        "loss.kernel": _loss,
        "precision.autocast": _autocast,
    },
    zero=_zero,
)


describe, edits = said_in(VOCABULARY)
