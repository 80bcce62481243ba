"""Job changes in the words of a DeepSpeed config: ZeRO stage, offload, batch sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..finding import Edit
    from ..source.node import Node
    from .format import Reading

_OFFLOADS = {
    "parallelism.zero.offload_optimizer.device": ("offload_optimizer", "cpu_offload"),
    "parallelism.zero.offload_parameters.device": ("offload_param", "cpu_offload_param"),
}
"""Job field -> the section that says it, and the old switch that DeepSpeed refuses beside it."""

_SIZES = {
    "micro_batch_size": "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
}


def keys_for(reading: Reading, changes: dict[str, Any]) -> dict[str, Any] | None:
    """The keys that make a change; None when a part of it cannot be said here."""
    return keys_in(reading.config.root, changes)


def keys_in(root: Node, changes: dict[str, Any]) -> dict[str, Any] | None:
    """The keys of the DeepSpeed config at `root` that make a change."""
    section = root.get("zero_optimization")
    if section is None or not section.is_mapping:
        return None
    wanted: dict[str, Any] = {}
    for path, value in changes.items():
        if path == "parallelism.zero.stage":
            wanted["zero_optimization.stage"] = value
        elif path in _OFFLOADS:
            name, old = _OFFLOADS[path]
            if section.get(old) is not None:
                return None
            wanted.update(_offload(section.get(name), f"zero_optimization.{name}", value))
        elif path in _SIZES and _is_free(root, _SIZES[path]):
            wanted[_SIZES[path]] = value
        else:
            return None
    return wanted


def _offload(present: Node | None, key: str, device: str) -> dict[str, Any]:
    if present is not None and present.is_mapping:
        return {f"{key}.device": device}
    return {key: {"device": device, "pin_memory": True}}


def _is_free(root: Node, key: str) -> bool:
    """Whether a size may change alone: no total ties it, and it is not the client's ("auto")."""
    node = root.get(key)
    return root.get("train_batch_size") is None and (node is None or node.value != "auto")


def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
    """The change as DeepSpeed keys: `zero_optimization.stage: 3`."""
    wanted = keys_for(reading, changes)
    if not wanted:
        return None
    return ", ".join(f"{key}: {value['device'] if isinstance(value, dict) else value}" for key, value in wanted.items())


def edits(reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:
    """The edits that make the change; None when DeepSpeed cannot say it or the file cannot be edited safely."""
    from ..source.edit import EditError, set_keys

    wanted = keys_for(reading, changes)
    if not wanted:
        return None
    try:
        return set_keys(reading.config, wanted)
    except EditError:
        return None
