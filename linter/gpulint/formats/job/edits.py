"""Job changes in a job file: the fields themselves, with what a tool would bring along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.key_changes import ZERO, Keys, edits_of, present, spoken
from .format import SHORTHANDS

if TYPE_CHECKING:
    from ...source.edit.replacement import Edit
    from ..core.format import Reading

_SHARDING = "parallelism.fsdp.sharding"


def keys_for(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """The fields to write; None for a field that stands where no key can be put."""
    wanted: Keys = {}
    for path, value in {**_companions(reading, changes), **changes}.items():
        key = _key(reading, path)
        if key is None:
            return None
        wanted[key] = value
    return present(reading.config, wanted)


def _companions(reading: Reading, changes: dict[str, Any]) -> Keys:
    """Fields that follow: LoRA's rank and targets, DeepSpeed's 16-bit weights with a float32 master copy."""
    job = reading.job
    more: Keys = {}
    if changes.get("method") == "lora" and job.adapter is None:
        rank = changes.get("adapter.r", 16)
        more |= {"adapter.type": "lora", "adapter.r": rank, "adapter.alpha": 2 * rank, "adapter.targets": "all-linear"}
    if changes.get("method") == "full":
        more |= {"adapter": None, "weights.quantization": None}
    packed = changes.get("weights.quantization.method")
    if packed in ("bnb-nf4", "bnb-int8"):
        more["weights.quantization.bits"] = 4 if packed == "bnb-nf4" else 8
        more["adapter.prepare_kbit"] = True
    starts = job.parallelism.zero is None and any(path.startswith(ZERO) for path in changes)
    half = job.precision.autocast or (job.weights.dtype if job.weights.dtype in ("bfloat16", "float16") else None)
    if starts and half:
        more |= {"weights.dtype": half, "precision.autocast": None, "precision.master_weights": True}
        more["parallelism.fsdp"] = None
    if _SHARDING in changes and job.parallelism.fsdp is None:
        more |= {"parallelism.fsdp.version": 2, "parallelism.fsdp.wrap": "transformer", "parallelism.zero": None}
        if job.precision.autocast:
            more["parallelism.fsdp.mixed_precision"] = job.precision.autocast
            more["parallelism.fsdp.upcast_trainable"] = True
    return more


def _key(reading: Reading, path: str) -> str | None:
    """The key that says a field: the field itself, or a shorthand (`loss: torch`) that the file uses."""
    root = reading.config.root
    short = SHORTHANDS.get(path)
    entry = root.find(short) if short else None
    if entry is not None and entry.value.is_scalar and entry.value.value is not None:
        return short
    head, _, rest = path.partition(".")
    node = root.get(head)
    while rest:
        if node is not None and not node.is_mapping and node.value is not None:
            return None
        head, _, rest = rest.partition(".")
        node = node.get(head) if node is not None and node.is_mapping else None
    return path


def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
    """The change as fields: `parallelism.zero.stage: 3`."""
    wanted = keys_for(reading, changes)
    return spoken({key: "null" if value is None else value for key, value in wanted.items()}) if wanted else None


def edits(reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:
    """The edits that make the change; None where the file cannot be edited safely.

    A field is taken back by null, which a job file reads as absent; TOML has none, so the key goes.
    """
    wanted = keys_for(reading, changes)
    if wanted and reading.config.syntax != "toml":
        from ...source.edit.edit import EditError, set_keys

        try:
            return set_keys(reading.config, wanted)
        except EditError:
            return None
    return edits_of(reading.config, present(reading.config, wanted)) if wanted else None
