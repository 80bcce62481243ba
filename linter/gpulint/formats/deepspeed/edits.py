"""Job changes in the words of a DeepSpeed config: ZeRO stage, offload, batch sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.key_changes import ZERO, zero_keys

if TYPE_CHECKING:
    from ...source.edit.replacement import Edit
    from ...source.node import Node
    from ..core.format import Reading

_SIZES = {
    "micro_batch_size": "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
}


def keys_for(reading: Reading, changes: dict[str, Any]) -> dict[str, Any] | None:
    """The keys that make a change; None when a part of it cannot be said here."""
    return keys_in(reading.config.root, changes)


def keys_in(root: Node, changes: dict[str, Any]) -> dict[str, Any] | None:
    """The keys of the DeepSpeed config at `root` that make a change."""
    wanted = zero_keys(root, "", {path: value for path, value in changes.items() if path.startswith(ZERO)})
    if wanted is None:
        return None
    for path, value in changes.items():
        if path in _SIZES and _is_free(root, _SIZES[path]):
            wanted[_SIZES[path]] = value
        elif not path.startswith(ZERO):
            return None
    return wanted


def _is_free(root: Node, key: str) -> bool:
    """Whether a size may change alone: no total ties it, and it is not the client's ("auto")."""
    node = root.get(key)
    return root.get("train_batch_size") is None and (node is None or node.value != "auto")


def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
    """The change as DeepSpeed keys: `zero_optimization.stage: 3`."""
    wanted = keys_for(reading, changes)
    if not wanted:
        return None
    return ", ".join(
        f"{key}: {value.get('device', '...') if isinstance(value, dict) else value}" for key, value in wanted.items()
    )


def edits(reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:
    """The edits that make the change; None when DeepSpeed cannot say it or the file cannot be edited safely."""
    from ...source.edit.edit import EditError, set_keys

    wanted = keys_for(reading, changes)
    if not wanted:
        return None
    try:
        return set_keys(reading.config, wanted)
    except EditError:
        return None
