"""Job changes in the words of accelerate: ZeRO stage and offload, FSDP sharding, checkpointing and offload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..finding import Edit
    from .format import Reading

_DEEPSPEED = {
    "parallelism.zero.stage": "deepspeed_config.zero_stage",
    "parallelism.zero.offload_optimizer.device": "deepspeed_config.offload_optimizer_device",
    "parallelism.zero.offload_parameters.device": "deepspeed_config.offload_param_device",
    "gradient_accumulation_steps": "deepspeed_config.gradient_accumulation_steps",
}

_STRATEGIES = ("full_shard", "shard_grad_op", "hybrid_shard", "hybrid_shard_zero2", "no_shard")


def keys_for(reading: Reading, changes: dict[str, Any]) -> dict[str, Any] | None:
    """The keys that make a change; None when accelerate cannot say a part of it here."""
    root = reading.config.root
    kind = root.get("distributed_type")
    distributed = kind.value if kind is not None else ""
    found: dict[str, Any] = {}
    for path, value in changes.items():
        if path in _DEEPSPEED and distributed == "DEEPSPEED":
            if root.find("deepspeed_config.deepspeed_config_file") is not None:
                return None
            found[_DEEPSPEED[path]] = value
        elif path == "parallelism.fsdp.sharding" and distributed == "FSDP" and value in _strategies(reading):
            found.update(_sharding(reading, value))
        elif path == "activation_checkpointing" and distributed == "FSDP" and value in ("full", "none"):
            found[_place(reading, "fsdp_activation_checkpointing")] = value == "full"
        elif path == "precision.autocast" and value in ("bfloat16", "float16"):
            found["mixed_precision"] = "bf16" if value == "bfloat16" else "fp16"
        else:
            return None
    return found


def _strategies(reading: Reading) -> tuple[str, ...]:
    return _STRATEGIES[:2] if _is_second(reading) else _STRATEGIES


def _is_second(reading: Reading) -> bool:
    fsdp = reading.job.parallelism.fsdp
    return fsdp is not None and fsdp.version == 2


def _sharding(reading: Reading, strategy: str) -> dict[str, Any]:
    if _is_second(reading):
        return {_place(reading, "fsdp_reshard_after_forward"): strategy == "full_shard"}
    key = "fsdp_sharding_strategy"
    if reading.config.root.find(_place(reading, "fsdp_reshard_after_forward")) is not None:
        key = "fsdp_reshard_after_forward"
    return {_place(reading, key): strategy.upper()}


def _place(reading: Reading, key: str) -> str:
    """The dotted place of an FSDP key, spelled without prefix where the file already spells it so."""
    short = f"fsdp_config.{key.removeprefix('fsdp_')}"
    return short if reading.config.root.find(short) is not None else f"fsdp_config.{key}"


def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
    """The change as accelerate keys: `deepspeed_config.zero_stage: 3`."""
    wanted = keys_for(reading, changes)
    if not wanted:
        return None
    return ", ".join(
        f"{key}: {str(value).lower() if isinstance(value, bool) else value}" for key, value in wanted.items()
    )


def edits(reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:
    """The edits that make the change; None when accelerate cannot say it or the file cannot be edited safely."""
    from ..source.edit import EditError, set_keys

    wanted = keys_for(reading, changes)
    if not wanted:
        return None
    try:
        return set_keys(reading.config, wanted)
    except EditError:
        return None
