"""Job changes in the words of LLM Foundry, OLMo and nanotron."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .key_changes import Keys, edits_of, spoken

if TYPE_CHECKING:
    from .format import Reading

__all__ = ["edits_of", "llm_foundry", "nanotron", "olmo", "spoken"]

_FOUNDRY = {
    "micro_batch_size": "device_train_microbatch_size",
    "sequence_length": "max_seq_len",
    "adapter.r": "model.peft_config.r",
}
_OLMO = {"micro_batch_size": "device_train_microbatch_size", "sequence_length": "model.max_sequence_length"}
_NANOTRON = {
    "micro_batch_size": "tokens.micro_batch_size",
    "gradient_accumulation_steps": "tokens.batch_accumulation_per_replica",
    "sequence_length": "tokens.sequence_length",
    "parallelism.tensor": "parallelism.tp",
    "parallelism.pipeline": "parallelism.pp",
}


def llm_foundry(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """The keys of LLM Foundry's file, below `parameters` in an mcli run; None when it cannot say a part."""
    root = reading.config.root
    prefix = "parameters." if root.find("parameters.model") is not None else ""
    wanted: Keys = {}
    for path, value in changes.items():
        if path in _FOUNDRY:
            wanted[prefix + _FOUNDRY[path]] = value
        elif path == "activation_checkpointing" and value in ("none", "full", "offload"):
            wanted[f"{prefix}fsdp_config.activation_checkpointing"] = value != "none"
            wanted[f"{prefix}fsdp_config.activation_cpu_offload"] = value == "offload"
        else:
            return None
    return wanted


def olmo(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """The keys of OLMo's file; None when it cannot say a part."""
    del reading
    wanted: Keys = {}
    for path, value in changes.items():
        if path in _OLMO:
            wanted[_OLMO[path]] = value
        elif (path, value) in (("activation_checkpointing", "full"), ("checkpoint_every", 1)):
            wanted["activation_checkpointing"] = "whole_layer"
        else:
            return None
    return wanted


def nanotron(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """The keys of nanotron's file; None when it cannot say a part."""
    del reading
    wanted: Keys = {}
    for path, value in changes.items():
        if path in _NANOTRON:
            wanted[_NANOTRON[path]] = value
        elif path == "activation_checkpointing" and value in ("none", "full"):
            wanted["parallelism.recompute_layer"] = value == "full"
        elif path == "parallelism.zero.stage" and value in (0, 1):
            wanted["optimizer.zero_stage"] = value
        else:
            return None
    return wanted
