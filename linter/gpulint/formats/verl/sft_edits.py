"""Job changes in the words of verl's SFT trainers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.dotted_edits import Vocabulary, said_in

if TYPE_CHECKING:
    from ..core.format import Reading
    from ..core.key_changes import Keys


def _newer(reading: Reading) -> bool:
    return reading.config.root.find("model.partial_pretrain") is None


def _batch(reading: Reading, value: int) -> Keys | None:
    origin = reading.job.origins.get("micro_batch_size")
    if reading.job.packing and origin is not None:
        length = reading.job.sequence_length or 0
        return {"data.max_token_len_per_gpu": value * length // reading.job.parallelism.context}
    return {"data.micro_batch_size_per_gpu": value}


def _checkpointing(reading: Reading, value: str) -> Keys | None:
    if value not in ("full", "none", "offload") or (value == "offload" and not _newer(reading)):
        return None
    offload = {"model.enable_activation_offload": True} if value == "offload" else {}
    return {"model.enable_gradient_checkpointing": value != "none", **offload}


def _method(reading: Reading, value: str) -> Keys | None:
    if value not in ("full", "lora"):
        return None
    if value == "full":
        return {"model.lora_rank": 0}
    return {} if reading.job.method == "lora" else {"model.lora_rank": 16, "model.lora_alpha": 32}


def _dtype(reading: Reading, value: str) -> Keys | None:
    word = {"bfloat16": "bf16", "float32": "fp32"}.get(value)
    section = "engine" if _newer(reading) else "model.fsdp_config"
    return {f"{section}.model_dtype": word} if word else None


def _loss(reading: Reading, value: str) -> Keys | None:
    if value != "liger":
        return None
    return {"model.use_fused_kernels": True} if _newer(reading) else {"model.use_liger": True}


VOCABULARY = Vocabulary(
    {"sequence_length": "data.max_length", "adapter.r": "model.lora_rank"},
    {
        "micro_batch_size": _batch,
        "activation_checkpointing": _checkpointing,
        "method": _method,
        "weights.dtype": _dtype,
        "loss.kernel": _loss,
    },
    total="data.train_batch_size",
)

describe, edits = said_in(VOCABULARY)
