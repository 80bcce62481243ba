"""What the options of `docker run`, and of what else starts containers from a command line, give the program in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...job.origin import Origin
from ..launch import Asked
from ..quantities import size
from .mounts import bound, bound_long
from .ports import forwarded

if TYPE_CHECKING:
    from ...source.document import Document
    from ...source.node import Entry
    from ..commands.wrappers import Unwrapped
    from ..launch import Resources

CONTAINER_SHARED_MEMORY = 64 << 20
"""Shared memory of a container that nobody gives more (docker run reference, `--shm-size`; containerd's default)."""

_MANAGERS = frozenset({"docker", "podman", "nvidia-docker"})
_GIVES = ("gpus", "device", "runtime", "privileged", "hooks-dir")
"""Options by which a container may get a GPU."""

_BINDS = ("v", "volume", "bind", "B", "container-mounts", "container_mounts")
"""docker run and podman run; singularity and apptainer exec; the pyxis plugin of srun."""

_DEVICES = re.compile(r'"?device=(?P<listed>[\w,:.-]+)"?')


def tell_container(resources: Resources, program: Unwrapped, file: Document) -> None:
    """Note what the container around a program is given: folders, shared and main memory, GPUs, published ports."""
    for name, options in program.options:
        for entry in options.root.entries():
            resources.mounts |= _mounted(entry)
        if name in _MANAGERS:
            resources.told["container.image"] = (program.image, Origin("derived", f"{name} run on the command line"))
            _memory(resources, options, name, file)
            _gpus(resources, options.root.entry("gpus"), file)
            _ports(resources, options, file)
            given = [name for name in _GIVES if options.root.entry(name) is not None]
            given += ["nvidia-docker"] if name == "nvidia-docker" else []
            resources.told["container.devices"] = (given, Origin("derived", f"{name} run on the command line"))
            resources.tell("container.manager", name, file.path, f"{name} run", options.root.span)


def _mounted(entry: Entry) -> dict[str, str]:
    key, value = str(entry.key.value), entry.value.value
    if key == "mount":
        return bound_long(str(value))
    if key not in _BINDS or not isinstance(value, str):
        return {}
    return {target: source for part in value.split(",") for target, source in bound(part).items()}


def _memory(resources: Resources, options: Document, name: str, file: Document) -> None:
    """`docker run` without `--shm-size`, `--ipc=host` or a mount leaves /dev/shm at 64 MiB."""
    root = options.root
    given = root.entry("shm-size") or root.entry("shm_size")
    if given is not None:
        resources.state("shared_memory", size(given.value.value), file.path, "shm-size", given.value.span)
    elif root.entry("ipc") is None and "/dev/shm" not in file.text:  # noqa: S108
        resources.shared_memory = CONTAINER_SHARED_MEMORY
        resources.origins["shared_memory"] = Origin("default", f"64 MiB, the default of {name}")
    limit = root.entry("memory") or root.entry("m")
    if limit is not None and (found := size(limit.value.value)):
        resources.state("host_memory", found, file.path, "memory", limit.value.span)
        resources.tell("container.memory_limit", found, file.path, "memory", limit.value.span)


def _ports(resources: Resources, options: Document, file: Document) -> None:
    """What `-p` publishes; with the host's network it says nothing."""
    given = [entry for entry in options.root.entries() if str(entry.key.value) in ("p", "publish")]
    network = options.root.entry("network") or options.root.entry("net")
    if not given or (network is not None and network.value.value == "host"):
        return
    inside = [forwarded(str(entry.value.value)) for entry in given]
    known = tuple(port for port in inside if port is not None)
    if len(known) == len(inside):
        at = given[0].value.span
        resources.asked_ports.append(Asked(known, "published port", "publish", file.path, at))


def _gpus(resources: Resources, entry: Entry | None, file: Document) -> None:
    """`--gpus 2` and `--gpus '"device=0,1"'`; `all` is as many as the machine has."""
    if entry is None or resources.gpus_per_node is not None:
        return
    text = str(entry.value.value).strip("'")
    listed = _DEVICES.fullmatch(text)
    count = len(listed["listed"].split(",")) if listed is not None else int(text) if text.isdigit() else 0
    if count:
        resources.state("gpus_per_node", count, file.path, "gpus", entry.value.span)
