"""What a pod spec says about a container that only rules read: its image, privileges, storage and /dev/shm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...job.origin import Origin
from ..commands.environment_facts import CONTAINER_SHARED_MEMORY
from ..quantities import size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...source.document import Document
    from ...source.node import Entry, Node
    from ..launch import Resources

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
SHARED = "/dev/shm"  # noqa: S108


def tell_pod(spec: Node, container: Node, file: Document, resources: Resources) -> None:
    """Note the settings of a container; /dev/shm is 64 MiB where nothing is mounted there."""
    image = container.entry("image")
    if image is not None and image.value.is_scalar:
        resources.tell("container.image", str(image.value.value), file.path, "image", image.value.span)
    for name, path in (
        ("container.privileged", "securityContext.privileged"),
        ("container.gpu_limit", None),
        ("container.gpu_request", None),
        ("container.ephemeral_storage", "resources.limits.ephemeral-storage"),
    ):
        entry = container.find(path) if path else _gpus(container, name.rpartition("_")[2] + "s")
        if entry is not None and entry.value.is_scalar:
            value = entry.value.value
            if name.endswith("storage"):
                value = size(value, binary=False)
            if value is not None:
                resources.tell(name, value, file.path, str(entry.key.value), entry.value.span)
    _devices(spec, container, resources)
    _shared(spec, container, file, resources)


def _gpus(container: Node, section: str) -> Entry | None:
    asked = container.find(f"resources.{section}")
    for entry in asked.value.entries() if asked is not None else ():
        if str(entry.key.value) in GPU_RESOURCES:
            return entry
    return None


def _devices(spec: Node, container: Node, resources: Resources) -> None:
    """Any way but the usual limit by which a container may get a GPU: claims, other resources, a runtime class."""
    asked = container.get("resources")
    names = [
        str(entry.key.value)
        for section in ("limits", "requests")
        for part in ((asked.get(section) if asked is not None else None),)
        for entry in (part.entries() if part is not None else ())
    ]
    others = [name for name in names if "/" in name] or [
        name for name in ("claims",) if asked is not None and asked.get(name) is not None
    ]
    others += [name for name in ("runtimeClassName", "resourceClaims") if spec.get(name) is not None]
    resources.told["container.devices"] = (others, Origin("derived", "the pod spec"))


def _shared(spec: Node, container: Node, file: Document, resources: Resources) -> None:
    ipc = spec.get("hostIPC")
    if ipc is not None and ipc.value is True:
        return
    mount = next(_mounts(container), None)
    if mount is None:
        if resources.shared_memory is None:
            resources.shared_memory = CONTAINER_SHARED_MEMORY
            resources.origins["shared_memory"] = Origin("default", "64 MiB, the default of container runtimes")
        return
    for volume in _items(spec.get("volumes")):
        name, empty = volume.get("name"), volume.entry("emptyDir")
        if name is None or empty is None or str(name.value) != mount:
            continue
        medium = empty.value.get("medium") if empty.value.is_mapping else None
        span = medium.span if medium is not None else empty.key.span
        value = str(medium.value) if medium is not None and medium.value else "disk"
        resources.tell("container.shm_medium", value, file.path, "emptyDir.medium", span)


def _mounts(container: Node) -> Iterator[str]:
    for mount in _items(container.get("volumeMounts")):
        name, path = mount.get("name"), mount.get("mountPath")
        if name is not None and path is not None and str(path.value).rstrip("/") == SHARED:
            yield str(name.value)


def _items(node: Node | None) -> list[Node]:
    return [item for item in node.items() if item.is_mapping] if node is not None and node.is_sequence else []
