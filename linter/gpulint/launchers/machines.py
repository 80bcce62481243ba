"""The cloud machine that a launcher names: how many GPUs it has, and of which kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..hardware.catalogue import UnknownGpu, find, instance

if TYPE_CHECKING:
    from ..hardware.catalogue import Instance
    from ..source.node import Span
    from .launch import Resources


def machine_of(name: object) -> Instance | None:
    """The cloud machine of that name; those of SageMaker are EC2's with `ml.` in front."""
    return instance(name.strip().removeprefix("ml.")) if isinstance(name, str) else None


def tell_machine(machine: Instance, resources: Resources, file: str, key: str, span: Span) -> None:
    """Note what rules may read of the machine, its name, its GPUs and their kind, and its memory if no limit is set."""
    for name, value in (("name", machine.name), ("gpus", machine.gpus), ("gpu", machine.gpu.title)):
        resources.tell(f"machine.{name}", value, file, key, span)
    if resources.host_memory is None:
        resources.state("host_memory", machine.memory, file, key, span, f"memory of {machine.name}")


def other_family(machine: Instance, kind: str) -> str | None:
    """The title of the GPU that `kind` names where it is surely none of the machine's; sizes and forms do not count."""
    try:
        named = find(kind)
    except UnknownGpu:
        return None
    return named.title if named.name.partition("-")[0] != machine.gpu.name.partition("-")[0] else None
