"""Job changes as OpenRLHF flags, in the spelling of the command's release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.key_changes import Keys, edits_of, spoken
from .openrlhf import NAMES

if TYPE_CHECKING:
    from ...source.edit.replacement import Edit
    from ..core.format import Reading

_SAID = {
    "micro_batch_size": "micro", "sequence_length": "max_len", "parallelism.zero.stage": "stage", "adapter.r": "rank",
    "parallelism.tensor": "tensor", "parallelism.context": "ring", "packing": "packing", "liger_kernels": "liger",
    "rl.vllm_gpu_memory_utilization": "share", "rl.vllm_sleep": "vllm_sleep", "rl.policy_offload": "ds_sleep",
    "rl.completion_length": "new_tokens", "rl.generations": "samples",
    "evaluation.micro_batch_size": "rollouts",
}  # fmt: skip
"""Job field -> what `openrlhf.NAMES` calls its flag."""


def _flag(reading: Reading, name: str) -> str:
    """The flag as the command has it; else the one of the present release, or of the former where all are."""
    root = reading.config.root
    names = NAMES[name]
    written = next((flag for flag in names if root.find(flag) is not None), None)
    former = not any(entry.value.is_mapping for entry in root.entries())
    if name == "checkpointing" and not written and not former:
        return "actor.gradient_checkpointing_enable" if root.entry("actor") else "model.gradient_checkpointing_enable"
    return written or (names[-1] if former else names[0])


def keys_for(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """The flags to write; None when a part of the change is not OpenRLHF's to say."""
    wanted: Keys = {}
    for path, value in changes.items():
        if path in _SAID:
            wanted[_flag(reading, _SAID[path])] = value
        elif path == "activation_checkpointing" and value in ("full", "none"):
            wanted[_flag(reading, "checkpointing")] = value == "full"
        elif path == "parallelism.zero.offload_optimizer.device" and value in ("cpu", "none"):
            wanted[_flag(reading, "adam_offload")] = value == "cpu"
        elif path == "method" and value == "lora":
            wanted |= {} if reading.job.method == "lora" else {_flag(reading, "rank"): 16}
        elif path == "rl.reference_model" and value is False:
            wanted[_flag(reading, "ref_offload")] = True
        else:
            return None
    return wanted


def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
    """The change as flags: `ds.zero_stage: 3`."""
    return spoken(keys_for(reading, changes))


def edits(reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:
    """The edits that make the change; None when OpenRLHF cannot say it or the command cannot be edited safely."""
    return edits_of(reading.config, keys_for(reading, changes))
