"""Job changes in the words of GPT-NeoX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .key_changes import ZERO, Keys, edits_of, spoken

if TYPE_CHECKING:
    from ..finding import Edit
    from .format import Reading

_PLAIN = {
    "micro_batch_size": "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "sequence_length": "seq_length",
    "parallelism.tensor": "model_parallel_size",
    "parallelism.pipeline": "pipe_parallel_size",
}
"""Job fields that one key says."""


def keys_for(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """The keys that make a change, spelled as the file spells them; None when GPT-NeoX cannot say a part of it."""
    wanted: Keys = {}
    for path, value in changes.items():
        if path in _PLAIN:
            wanted[_spelled(reading, _PLAIN[path])] = value
        elif path == "activation_checkpointing" and value in ("none", "full"):
            wanted[_spelled(reading, "checkpoint_activations")] = value == "full"
        elif path == f"{ZERO}stage":
            wanted["zero_optimization.stage"] = value
        else:
            return None
    return wanted


def _spelled(reading: Reading, key: str) -> str:
    """The key with the dashes that the file gives it, or gives most of its keys."""
    written = [str(name) for name in reading.config.root.keys()]  # noqa: SIM118
    same = next((name for name in written if name.replace("-", "_") == key), None)
    dashes = sum("-" in name for name in written) > sum("_" in name for name in written)
    return same or (key.replace("_", "-") if dashes else key)


def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
    """The change as keys."""
    return spoken(keys_for(reading, changes))


def edits(reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:
    """The edits that make the change; None when GPT-NeoX cannot say it or the file cannot be edited safely."""
    return edits_of(reading.config, keys_for(reading, changes))
