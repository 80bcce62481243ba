"""Facts about who starts the ranks of a job, and how the nodes find each other."""

from __future__ import annotations

from typing import Any

from ..expression import UNKNOWN
from .facts import Facts, fact, filled_at_launch

_NESTED = ("deepspeed_hostfile", "deepspeed_multinode_launcher")
"""Options of `accelerate launch` that its config file holds in the DeepSpeed section."""


def accelerate_setting(facts: Facts, key: str) -> Any:
    """An option of `accelerate launch`, or the setting of its config file; None where neither states it."""
    if facts.has(f"launch.accelerate.{key}"):
        return facts.get(f"launch.accelerate.{key}")
    if facts.reading.format != "accelerate":
        return None
    return facts.get(f"config.deepspeed_config.{key}" if key in _NESTED else f"config.{key}")


def _accelerate_fact(key: str, type_: str, meaning: str) -> None:
    def derive(facts: Facts) -> Any:
        value = accelerate_setting(facts, key)
        return UNKNOWN if filled_at_launch(value) else value

    derive.__doc__ = meaning
    fact(f"accelerate.{key}", type=type_)(derive)


_accelerate_fact(
    "gpu_ids", "text", "The GPUs that `accelerate launch` makes visible, option or config file; null if unset."
)
_accelerate_fact(
    "num_machines", "whole number", "Machines of `accelerate launch`, option or config file; null if unset."
)
_accelerate_fact("deepspeed_hostfile", "text", "The hostfile of accelerate's DeepSpeed launcher; null if unset.")
_accelerate_fact("deepspeed_multinode_launcher", "text", "DeepSpeed's launcher over several machines; null is `pdsh`.")


@fact("accelerate.distributed_type")
def _distributed_type(facts: Facts) -> Any:
    """How `accelerate launch` distributes the job: `MULTI_GPU`, `DEEPSPEED`, `FSDP` ...; null if unset."""
    for option, name in (("use_deepspeed", "DEEPSPEED"), ("use_fsdp", "FSDP"), ("multi_gpu", "MULTI_GPU")):
        if facts.get(f"launch.accelerate.{option}") is True:
            return name
    value = accelerate_setting(facts, "distributed_type")
    return value.upper() if isinstance(value, str) else value


def _whole(value: Any) -> Any:
    text = str(value)
    return int(text) if text.isdigit() and not isinstance(value, bool) else UNKNOWN


_PORTS = (
    "launch.torchrun.master_port", "launch.accelerate.main_process_port", "launch.deepspeed.master_port",
    "launch.environment.MASTER_PORT",
)  # fmt: skip


@fact("rendezvous.port", type="whole number")
def _rendezvous_port(facts: Facts) -> Any:
    """The port on which the ranks meet, where a launcher, its config file or the environment states it as a number."""
    endpoint = facts.get("launch.torchrun.rdzv_endpoint")
    own = accelerate_setting(facts, "main_process_port")
    stated = [facts.get(path) for path in _PORTS if facts.has(path)]
    values = [*stated, own, str(endpoint).rpartition(":")[2] if isinstance(endpoint, str) else None]
    return next((port for value in values if isinstance(port := _whole(value), int)), UNKNOWN)


_LIGHTNING = {
    "litgpt": ("devices", "num_nodes"),
}
"""Format of a tool that stands on Lightning -> its keys for the processes of a node and for the nodes."""


@fact("lightning.devices", type="whole number")
def _devices(facts: Facts) -> Any:
    """Processes of a node that a tool on Lightning is told of (`devices`)."""
    keys = _LIGHTNING.get(facts.reading.format)
    return UNKNOWN if keys is None else _whole(facts.get(f"config.{keys[0]}"))


@fact("lightning.nodes", type="whole number")
def _nodes(facts: Facts) -> Any:
    """Nodes that a tool on Lightning is told of (`num_nodes`)."""
    keys = _LIGHTNING.get(facts.reading.format)
    return UNKNOWN if keys is None else _whole(facts.get(f"config.{keys[1]}"))


@fact("gpus.of_one_process", type="whole number")
def _of_one_process(facts: Facts) -> Any:
    """GPUs that the only process of a training run sees, where the command starts one; unknown where nobody says how
    many they are.
    """
    return facts.get("launch.gpus_of_one_process")
