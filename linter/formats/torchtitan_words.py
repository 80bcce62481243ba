"""Job changes in the words of torchtitan's TOML, for people: `training.local_batch_size: 1`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .key_changes import Keys, spoken

if TYPE_CHECKING:
    from .format import Reading

_PLAIN = {
    "sequence_length": "training.seq_len",
    "parallelism.tensor": "parallelism.tensor_parallel_degree",
    "parallelism.context": "parallelism.context_parallel_degree",
    "parallelism.expert": "parallelism.expert_parallel_degree",
    "parallelism.fsdp.offload": "training.enable_cpu_offload",
    "compile": "compile.enable",
}


def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
    """The change as keys; None when torchtitan cannot say a part of it."""
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
    return spoken(wanted)
