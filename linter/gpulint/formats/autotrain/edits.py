"""Job changes in the words of AutoTrain configs and flags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.dotted_edits import Vocabulary, said_in
from ..core.key_changes import ZERO

if TYPE_CHECKING:
    from ..core.format import Reading
    from ..core.key_changes import Keys


def _spelled(reading: Reading, key: str) -> str:
    """Parameters stand in `params` of a file, and are the flags of a command."""
    if reading.config.syntax != "flags":
        return key if key.startswith("data.") else f"params.{key}"
    dashed = key.replace("_", "-")
    return key if reading.config.root.entry(key) is not None else dashed


def _language(reading: Reading) -> bool:
    return reading.job.objective in ("sft", "pretrain", "dpo", "orpo", "reward")


def _length(reading: Reading, value: int) -> Keys | None:
    return {"block_size" if _language(reading) else "max_seq_length": value}


def _checkpointing(reading: Reading, value: str) -> Keys | None:
    if value not in ("full", "none") or not _language(reading):
        return None
    return {"disable_gradient_checkpointing": True if value == "none" else None}


def _method(reading: Reading, value: str) -> Keys | None:
    if value not in ("full", "lora") or reading.job.objective in ("classification", "token_classification"):
        return None
    word = None if reading.job.weights.quantization is None else "int4"
    return {"peft": True, "quantization": word or "none"} if value == "lora" else {"peft": False}


def _quantization(_reading: Reading, value: str | None) -> Keys | None:
    word = {"bnb-nf4": "int4", "bnb-int8": "int8", None: "none"}.get(value)
    return {"peft": True, "quantization": word} if word else None


def _autocast(_reading: Reading, value: str | None) -> Keys | None:
    return {"mixed_precision": {"bfloat16": "bf16", "float16": "fp16"}.get(str(value), "none")}


def _attention(reading: Reading, value: str) -> Keys | None:
    return {"use_flash_attention_2": True} if value == "flash_attention_2" and _language(reading) else None


def _zero(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """`distributed_backend: deepspeed` is ZeRO-3 without offload, and nothing else can be said."""
    offloads = any(value not in (None, "none") for path, value in changes.items() if path != f"{ZERO}stage")
    said = changes.get(f"{ZERO}stage") == 3 and not offloads and _language(reading)
    return {"distributed_backend": "deepspeed"} if said else None


VOCABULARY = Vocabulary(
    {
        "micro_batch_size": "batch_size",
        "gradient_accumulation_steps": "gradient_accumulation",
        "optimizer.name": "optimizer",
        "adapter.r": "lora_r",
    },
    {
        "sequence_length": _length,
        "activation_checkpointing": _checkpointing,
        "method": _method,
        "weights.quantization.method": _quantization,
        "precision.autocast": _autocast,
        "attention": _attention,
    },
    spelled=_spelled,
    zero=_zero,
)

describe, edits = said_in(VOCABULARY)
