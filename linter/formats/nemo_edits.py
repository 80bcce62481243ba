"""Job changes in the words of NeMo 1.x."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .key_changes import Keys, edits_of, spoken

if TYPE_CHECKING:
    from ..finding import Edit
    from .format import Reading

_PLAIN = {
    "micro_batch_size": "micro_batch_size",
    "sequence_length": "encoder_seq_length",
    "parallelism.tensor": "tensor_model_parallel_size",
    "parallelism.pipeline": "pipeline_model_parallel_size",
    "parallelism.context": "context_parallel_size",
    "parallelism.expert": "expert_model_parallel_size",
    "parallelism.sequence": "sequence_parallel",
    "adapter.r": "peft.lora_tuning.adapter_dim",
}
"""Job field -> the key below `model`."""


def keys_for(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """The keys that make a change; None when NeMo cannot say a part of it."""
    wanted: Keys = {}
    for path, value in changes.items():
        if path in _PLAIN:
            wanted[f"model.{_PLAIN[path]}"] = value
            if path == "sequence_length" and reading.config.root.find("model.data.seq_length") is not None:
                wanted["model.data.seq_length"] = value
        elif path == "activation_checkpointing" and value == "full":
            wanted["model.activations_checkpoint_granularity"] = "full"
            wanted["model.activations_checkpoint_method"] = "uniform"
            wanted["model.activations_checkpoint_num_layers"] = 1
        elif path == "activation_checkpointing" and value == "selective":
            wanted["model.activations_checkpoint_granularity"] = "selective"
        elif path == "checkpoint_policy":
            continue
        elif path == "parallelism.zero.stage" and value == 1 and reading.job.precision.master_weights:
            wanted["model.optim.name"] = "distributed_fused_adam"
        else:
            return None
    return wanted


def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
    """The change as keys."""
    return spoken(keys_for(reading, changes))


def edits(reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:
    """The edits that make the change; None when NeMo cannot say it or the file cannot be edited safely."""
    return edits_of(reading.config, keys_for(reading, changes))
