"""Job changes in the words of Megatron-LM's options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .key_changes import Keys, edits_of, spoken

if TYPE_CHECKING:
    from ..finding import Edit
    from .format import Reading

_PLAIN = {
    "micro_batch_size": "micro-batch-size",
    "sequence_length": "seq-length",
    "parallelism.tensor": "tensor-model-parallel-size",
    "parallelism.pipeline": "pipeline-model-parallel-size",
    "parallelism.context": "context-parallel-size",
    "parallelism.expert": "expert-model-parallel-size",
    "parallelism.sequence": "sequence-parallel",
}
"""Job fields that one option says."""


def keys_for(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """The options that make a change; None when Megatron cannot say a part of it."""
    wanted: Keys = {}
    for path, value in changes.items():
        if path in _PLAIN:
            wanted[_spelled(reading, _PLAIN[path])] = value
        elif path == "activation_checkpointing" and value == "full":
            wanted[_spelled(reading, "recompute-granularity")] = "full"
            wanted[_spelled(reading, "recompute-method")] = "uniform"
            wanted[_spelled(reading, "recompute-num-layers")] = 1
        elif path == "activation_checkpointing" and value == "selective":
            wanted[_spelled(reading, "recompute-granularity")] = "selective"
        elif path == "checkpoint_policy":
            continue
        elif path == "parallelism.zero.stage" and value == 1:
            wanted[_spelled(reading, "use-distributed-optimizer")] = True
        else:
            return None
    return wanted


def _spelled(reading: Reading, option: str) -> str:
    """The option as the file spells it: a flag, or a key of MODEL_ARGS."""
    if reading.config.root.get("MODEL_ARGS") is not None:
        return f"MODEL_ARGS.--{option}"
    written = reading.config.root.keys()
    return next((str(key) for key in written if str(key).replace("_", "-") == option), option)


def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
    """The change as options."""
    wanted = keys_for(reading, changes)
    return spoken({key.rpartition("--")[2]: value for key, value in wanted.items()}) if wanted else None


def edits(reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:
    """The edits that make the change; None when Megatron cannot say it or the text cannot be edited safely."""
    return edits_of(reading.config, keys_for(reading, changes))
