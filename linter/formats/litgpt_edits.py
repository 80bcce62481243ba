"""Job changes in the words of LitGPT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .key_changes import Keys, edits_of, spoken

if TYPE_CHECKING:
    from ..finding import Edit
    from .format import Reading

_PLAIN = {
    "micro_batch_size": "train.micro_batch_size",
    "sequence_length": "train.max_seq_length",
    "adapter.r": "lora_r",
}
"""Job fields that one key says."""

_PACKED = {"bnb-nf4": "bnb.nf4", "bnb-fp4": "bnb.fp4", "bnb-int8": "bnb.int8-training"}


def keys_for(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """The keys that make a change; None when LitGPT cannot say a part of it."""
    wanted: Keys = {}
    job = reading.job
    for path, value in changes.items():
        if path in _PLAIN:
            wanted[_PLAIN[path]] = value
        elif path == "gradient_accumulation_steps":
            size = changes.get("micro_batch_size", job.micro_batch_size) or 1
            wanted["train.global_batch_size"] = value * size * (job.hardware.gpus or 1)
        elif path == "weights.quantization.method" and value in _PACKED and _can_pack(reading):
            wanted.update({"quantize": _PACKED[value], "precision": "bf16-true"})
        elif path == "weights.dtype" and value in ("bfloat16", "float32"):
            wanted["precision"] = "bf16-true" if value == "bfloat16" else "32-true"
        else:
            return None
    return wanted


def _can_pack(reading: Reading) -> bool:
    """Only the LoRA script has `quantize`, and only on one device."""
    return reading.job.method == "lora" and (reading.job.hardware.gpus or 1) == 1


def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
    """The change as keys."""
    return spoken(keys_for(reading, changes))


def edits(reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:
    """The edits that make the change; None when LitGPT cannot say it or the file cannot be edited safely."""
    return edits_of(reading.config, keys_for(reading, changes))
