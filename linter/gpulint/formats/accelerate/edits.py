"""Job changes in the words of accelerate: ZeRO stage and offload, FSDP sharding, checkpointing, precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.key_changes import ZERO, Keys, edits_of, present, spoken

if TYPE_CHECKING:
    from ...source.edit.replacement import Edit
    from ...source.node import Node
    from ..core.format import Reading

_DEEPSPEED = {
    f"{ZERO}stage": "zero_stage",
    f"{ZERO}offload_optimizer.device": "offload_optimizer_device",
    f"{ZERO}offload_parameters.device": "offload_param_device",
    f"{ZERO}init": "zero3_init_flag",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
}
"""Job field -> the key of `deepspeed_config`."""

_SHARDING = "parallelism.fsdp.sharding"
_OFFLOAD = "parallelism.fsdp.offload"
_STRATEGIES = ("full_shard", "shard_grad_op", "hybrid_shard", "hybrid_shard_zero2", "no_shard")
_ONE_PROCESS = frozenset({"NO", "MULTI_GPU", "DEEPSPEED", "FSDP", ""})
"""Kinds of runs on GPUs that can become each other."""

_FSDP2 = {
    "fsdp_version": 2, "fsdp_reshard_after_forward": True, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "fsdp_cpu_ram_efficient_loading": True, "fsdp_state_dict_type": "FULL_STATE_DICT", "fsdp_offload_params": False,
}  # fmt: skip
"""What TRL ships as `fsdp2.yaml`."""


def keys_for(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """The keys that make a change; None when accelerate cannot say a part of it here."""
    root = reading.config.root
    sharding = {path: value for path, value in changes.items() if path in _DEEPSPEED or path in (_SHARDING, _OFFLOAD)}
    found = sharding_keys(root, sharding) if sharding else {}
    if found is None:
        return None
    for path, value in changes.items():
        if path in sharding:
            continue
        if path == "activation_checkpointing" and _kind(root) == "FSDP" and value in ("full", "none"):
            found[_place(root, "fsdp_activation_checkpointing")] = value == "full"
        elif path == "precision.autocast" and value in ("bfloat16", "float16"):
            found["mixed_precision"] = "bf16" if value == "bfloat16" else "fp16"
        else:
            return None
    return present(reading.config, found)


def sharding_keys(root: Node, changes: dict[str, Any]) -> Keys | None:
    """The keys of an accelerate config that shard a run so, whatever it did before; None where it cannot say it."""
    kind = _kind(root)
    if kind not in _ONE_PROCESS:
        return None
    if _OFFLOAD in changes:
        alone = len(changes) == 1 and kind == "FSDP"
        return {_place(root, "fsdp_offload_params"): changes[_OFFLOAD]} if alone else None
    if _SHARDING in changes:
        return _fsdp(root, changes[_SHARDING]) if len(changes) == 1 else None
    if not all(path in _DEEPSPEED for path in changes):
        return None
    wanted = {_DEEPSPEED[path]: value for path, value in changes.items()}
    if kind == "DEEPSPEED":
        if root.find("deepspeed_config.deepspeed_config_file") is not None:
            return None
        return {f"deepspeed_config.{key}": value for key, value in wanted.items()}
    if "zero_stage" not in wanted:
        return None
    last = wanted["zero_stage"] == 3
    section = {**wanted, "zero3_init_flag": last, **({"zero3_save_16bit_model": True} if last else {})}
    old = {"fsdp_config": None} if root.entry("fsdp_config") is not None else {}
    return {"distributed_type": "DEEPSPEED", "deepspeed_config": section, **old}


def _fsdp(root: Node, strategy: str) -> Keys | None:
    if _kind(root) != "FSDP":
        if strategy != "full_shard":
            return None
        old = {"deepspeed_config": None} if root.entry("deepspeed_config") is not None else {}
        return {"distributed_type": "FSDP", "fsdp_config": dict(_FSDP2), **old}
    if _is_second(root):
        if strategy not in _STRATEGIES[:2]:
            return None
        return {_place(root, "fsdp_reshard_after_forward"): strategy == "full_shard"}
    if strategy not in _STRATEGIES:
        return None
    newer = root.find(_place(root, "fsdp_reshard_after_forward")) is not None
    key = "fsdp_reshard_after_forward" if newer else "fsdp_sharding_strategy"
    return {_place(root, key): strategy.upper()}


def _kind(root: Node) -> str:
    kind = root.get("distributed_type")
    return str(kind.value) if kind is not None and kind.value is not None else ""


def _is_second(root: Node) -> bool:
    version = root.find(_place(root, "fsdp_version"))
    return version is not None and str(version.value.value) == "2"


def _place(root: Node, key: str) -> str:
    """The dotted place of an FSDP key, spelled without prefix where the file already spells it so."""
    short = f"fsdp_config.{key.removeprefix('fsdp_')}"
    return short if root.find(short) is not None else f"fsdp_config.{key}"


def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
    """The change as accelerate keys: `deepspeed_config.zero_stage: 3`."""
    return spoken(keys_for(reading, changes))


def edits(reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:
    """The edits that make the change; None when accelerate cannot say it or the file cannot be edited safely."""
    return edits_of(reading.config, keys_for(reading, changes))
