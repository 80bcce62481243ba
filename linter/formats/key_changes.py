"""A Job change as keys of a flat config: said for people, and written as edits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..finding import Edit
    from ..source.document import Document

Keys = dict[str, Any]
"""Dotted keys to write; None takes a key out."""

ZERO = "parallelism.zero."
OFFLOADS = {
    f"{ZERO}offload_optimizer.device": "offload_optimizer",
    f"{ZERO}offload_parameters.device": "offload_param",
}
"""Job field -> the section of a DeepSpeed config."""


def spoken(wanted: Keys | None) -> str | None:
    """The keys for people: `use_peft: true, lora_r: 16, no deepspeed`."""
    if not wanted:
        return None
    written = [f"{key}: {value_text(value)}" for key, value in wanted.items() if value is not None]
    return ", ".join(written + [f"no {key}" for key, value in wanted.items() if value is None])


def edits_of(document: Document, wanted: Keys | None) -> list[Edit] | None:
    """The edits that write and take out keys; None when there is nothing to do or it cannot be done safely."""
    if not wanted:
        return None
    from ..source.edit import EditError, change

    written = {key: value for key, value in wanted.items() if value is not None}
    try:
        return change(document, written, remove=[key for key, value in wanted.items() if value is None])
    except EditError:
        return None


def present(document: Document, wanted: Keys) -> Keys:
    """`wanted` without the removals of keys that are not there."""
    root = document.root
    return {key: value for key, value in wanted.items() if value is not None or root.find(key) is not None}


def value_text(value: object) -> str:
    """A value as YAML spells it on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {value_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(value_text(item) for item in value) + "]"
    return str(value)


def zero_keys(document: Document, prefix: str, changes: Keys) -> Keys | None:
    """The ZeRO part of a change as keys of a DeepSpeed mapping that the file holds at `prefix`, "" for all of it."""
    base = f"{prefix}.zero_optimization" if prefix else "zero_optimization"
    if document.root.find(base) is None:
        return None
    wanted: Keys = {}
    for path, value in changes.items():
        if path == f"{ZERO}stage":
            wanted[f"{base}.stage"] = value
        elif path in OFFLOADS:
            key = f"{base}.{OFFLOADS[path]}"
            section = document.root.find(key)
            held = section is not None and section.value.is_mapping
            wanted[f"{key}.device" if held else key] = value if held else {"device": value, "pin_memory": True}
        else:
            return None
    return wanted


def inline_deepspeed(stage: int, offloads: dict[str, str]) -> Keys:
    """A DeepSpeed config that leaves all it can to the Trainer ("auto"). `offloads` is section -> device."""
    zero: Keys = {"stage": stage, "overlap_comm": True, "contiguous_gradients": True, "reduce_bucket_size": "auto"}
    if stage == 3:
        zero |= {"stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto"}
    for section, device in offloads.items():
        if device != "none":
            zero[section] = {"device": device, "pin_memory": True}
    return {
        "zero_optimization": zero,
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
        "gradient_clipping": "auto",
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
    }
