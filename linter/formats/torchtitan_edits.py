"""Job changes in the words of torchtitan's TOML: `training.local_batch_size: 1`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .key_changes import Keys, edits_of, spoken

if TYPE_CHECKING:
    from ..finding import Edit
    from .format import Reading

_PLAIN = {
    "sequence_length": "training.seq_len",
    "parallelism.tensor": "parallelism.tensor_parallel_degree",
    "parallelism.context": "parallelism.context_parallel_degree",
    "parallelism.expert": "parallelism.expert_parallel_degree",
    "parallelism.fsdp.offload": "training.enable_cpu_offload",
    "compile": "compile.enable",
}


def keys_for(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """The keys that make a change; None when torchtitan cannot say a part of it."""
    old = reading.config.root.find("training.batch_size") is not None
    wanted: Keys = {}
    for path, value in changes.items():
        if path == "micro_batch_size" and reading.job.parallelism.pipeline == 1:
            wanted["training.batch_size" if old else "training.local_batch_size"] = value
        elif path == "activation_checkpointing" and value in ("none", "full"):
            wanted["activation_checkpoint.mode"] = value
        elif path in _PLAIN and not old:
            wanted[_PLAIN[path]] = value
        elif path == "sequence_length":
            wanted["training.seq_len"] = value
        else:
            return None
    return wanted


def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
    """The change as keys for people."""
    return spoken(keys_for(reading, changes))


def edits(reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:
    """The edits that make the change; None when torchtitan cannot say it or the file cannot be edited safely."""
    return edits_of(reading.config, keys_for(reading, changes))
