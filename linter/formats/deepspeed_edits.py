"""Job changes in the words of a DeepSpeed config."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..finding import Edit
    from .format import Reading

_ZERO = "parallelism.zero."


def keys(reading: Reading, changes: dict[str, Any], prefix: str = "") -> dict[str, Any] | None:
    """The DeepSpeed keys to set for a change, dotted below `prefix`; None when a part cannot be said here."""
    root = reading.config.root
    section = root.find(f"{prefix}zero_optimization")
    if section is None or not section.value.is_mapping:
        return None
    wanted: dict[str, Any] = {}
    zero = f"{prefix}zero_optimization."
    for path, value in changes.items():
        if path == f"{_ZERO}stage":
            wanted[f"{zero}stage"] = value
        elif path == f"{_ZERO}offload_optimizer.device":
            wanted.update(_offload(section.value.get("offload_optimizer"), f"{zero}offload_optimizer", value))
        elif path == f"{_ZERO}offload_parameters.device":
            wanted.update(_offload(section.value.get("offload_param"), f"{zero}offload_param", value))
        elif path == "micro_batch_size" and root.get("train_batch_size") is None:
            wanted[f"{prefix}train_micro_batch_size_per_gpu"] = value
        elif path == "gradient_accumulation_steps" and root.get("train_batch_size") is None:
            wanted[f"{prefix}gradient_accumulation_steps"] = value
        else:
            return None
    return wanted


def _offload(present: Any, key: str, device: str) -> dict[str, Any]:
    if present is not None and present.is_mapping:
        return {f"{key}.device": device}
    return {key: {"device": device, "pin_memory": True}}


def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
    """The change as DeepSpeed keys: `zero_optimization.stage: 3`."""
    wanted = keys(reading, changes)
    if not wanted:
        return None
    return ", ".join(f"{key}: {value['device'] if isinstance(value, dict) else value}" for key, value in wanted.items())


def edits(reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:
    """The edits of the file that make the change."""
    from ..source.edit import EditError, set_keys

    wanted = keys(reading, changes)
    if not wanted:
        return None
    try:
        return list(set_keys(reading.config, wanted))
    except EditError:
        return None
