"""A Job change as keys of a flat config: said for people, and written as edits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...upstream.transformers import FSDP_PLUGIN_KEYS

if TYPE_CHECKING:
    from ...source.document import Document
    from ...source.edit.replacement import Edit
    from ...source.node import Node

Keys = dict[str, Any]
"""Dotted keys to write; None takes a key out."""

ZERO = "parallelism.zero."
OFFLOADS = {
    f"{ZERO}offload_optimizer.device": "offload_optimizer",
    f"{ZERO}offload_parameters.device": "offload_param",
}
"""Job field -> the section of a DeepSpeed config."""
STAGE = f"{ZERO}stage"


class UntakenKeyError(LookupError):
    """A change whose key or value the release that runs does not take."""


_REST = "…"
"""The key that stands for the rest of a mapping."""


def spoken(wanted: Keys | None) -> str | None:
    """The keys for people: `use_peft: true, lora_r: 16, no deepspeed`; of a mapping, what it decides."""
    if not wanted:
        return None
    written = [f"{key}: {value_text(_decided(value))}" for key, value in wanted.items() if value is not None]
    return ", ".join(written + [f"no {key}" for key, value in wanted.items() if value is None])


def as_written(document: Document, wanted: Keys | None) -> Keys | None:
    """The keys under the names that a manifest gives to options of what it starts (`max_total_tokens`)."""
    return {_name(document, key): value for key, value in wanted.items()} if wanted else None


def _name(document: Document, key: str) -> str:
    entry = document.root.find(key)
    raw = entry.key.raw.strip("'\"-") if entry is not None else ""
    same = raw.replace("_", "-") == key.rpartition(".")[2].replace("_", "-")
    return key if same or not raw.replace("_", "").isalnum() else raw


def edits_of(document: Document, wanted: Keys | None, *, nulls: bool = False) -> list[Edit] | None:
    """The edits that write and take out keys; None when there is nothing to do or it cannot be done safely.

    `nulls`: a key is taken out by null, where the syntax has one.
    """
    if not wanted:
        return None
    from ...source.edit.edit import EditError, change

    nulls = nulls and document.syntax != "toml"
    written = {key: value for key, value in wanted.items() if nulls or value is not None}
    try:
        return change(document, written, remove=[key for key in wanted if key not in written])
    except EditError:
        return None


def present(document: Document, wanted: Keys) -> Keys:
    """`wanted` without the removals of keys that are not there."""
    root = document.root
    return {key: value for key, value in wanted.items() if value is not None or root.find(key) is not None}


def trainer_offload(root: Node, release: str, value: bool) -> Keys | None:
    """FSDP's offload as TrainingArguments take it: `fsdp_config.cpu_offload`, or a word of `fsdp`; None without FSDP.

    Before transformers 5.10 (`release`) it is a word alone. `fsdp_config` as a path belongs to another file.
    """
    fsdp, config = root.get("fsdp"), root.get("fsdp_config")
    if fsdp is None or not fsdp.is_scalar or not fsdp.value or not value:
        return None
    if config is not None and config.is_mapping and FSDP_PLUGIN_KEYS.at(release):
        spelled = any(str(key).startswith("fsdp_") for key in config.keys())  # noqa: SIM118  (a Node)
        return {f"fsdp_config.{'fsdp_' if spelled else ''}cpu_offload": True}
    if isinstance(fsdp.value, str) and fsdp.value.lower() not in ("true", "1"):
        return {"fsdp": f"{fsdp.value} offload"}
    return {"fsdp_config": {"cpu_offload": True}} if config is None and FSDP_PLUGIN_KEYS.at(release) else None


def _decided(value: Any) -> Any:
    """A mapping without what it leaves to the Trainer (`auto`), which an ellipsis stands for."""
    if not isinstance(value, dict):
        return value
    kept = {key: _decided(item) for key, item in value.items() if item not in ("auto", {"enabled": "auto"})}
    return kept if len(kept) == len(value) else {**kept, _REST: ""}


def value_text(value: object) -> str:
    """A value as YAML spells it on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return (
            "{" + ", ".join(key if key == _REST else f"{key}: {value_text(item)}" for key, item in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(value_text(item) for item in value) + "]"
    return '""' if value == "" else str(value)
