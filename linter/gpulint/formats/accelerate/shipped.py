"""The accelerate configs that TRL ships and its `accelerate_config` names (trl 1.16.0 `accelerate_configs/*.yaml`)."""

from __future__ import annotations

from typing import Any

SHIPPED_PROCESSES = 8
"""`num_processes` of every config that TRL ships."""

_WRAP = {"fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_cpu_ram_efficient_loading": True,
         "fsdp_state_dict_type": "FULL_STATE_DICT", "fsdp_offload_params": False}  # fmt: skip

SHIPPED: dict[str, dict[str, Any]] = {
    "single_gpu": {"distributed_type": "NO"},
    "multi_gpu": {"distributed_type": "MULTI_GPU"},
    "zero1": {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 1}},
    "zero2": {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 2}},
    "zero3": {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 3}},
    "fsdp1": {
        "distributed_type": "FSDP",
        "fsdp_config": {
            **_WRAP, "fsdp_version": 1, "fsdp_reshard_after_forward": "FULL_SHARD", "fsdp_use_orig_params": True,
            "fsdp_backward_prefetch": "BACKWARD_PRE", "fsdp_forward_prefetch": True,
        },
    },
    "fsdp2": {
        "distributed_type": "FSDP",
        "fsdp_config": {**_WRAP, "fsdp_version": 2, "fsdp_reshard_after_forward": True},
    },
}  # fmt: skip
"""The configs in `trl/accelerate_configs`, as far as they decide memory; all have 8 processes and bf16."""


def shipped(name: str) -> dict[str, Any] | None:
    """The config of that name, with its processes; None where TRL ships none."""
    config = SHIPPED.get(name)
    if config is None:
        return None
    return {**config, "num_processes": 1 if config["distributed_type"] == "NO" else SHIPPED_PROCESSES}
