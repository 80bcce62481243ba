"""What a pod spec says about a container that only rules read: its image, privileges, storage and /dev/shm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...job.origin import Origin
from ..containers.docker import CONTAINER_SHARED_MEMORY
from ..quantities import gpus_of, quantity
from ..values import mappings, scalar, value_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...source.document import Document
    from ...source.node import Entry, Node
    from ..launch import Resources

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
_OTHER_RESOURCES = (
    "nvidia.com/gpu.shared",
    "nvidia.com/vgpu",
    "nvidia.com/pgpu",
    "nvidia.com/gpumem",
    "nvidia.com/gpucores",
)
"""Resources that stand one letter off a GPU's and are offered: time slicing, KubeVirt, HAMi."""
_ONE_LETTER_OFF = 0.9
"""Likeness (difflib's ratio) of names of about 14 letters of which one is missing, doubled, or in another's place."""

SHARED = "/dev/shm"  # noqa: S108

_READ = {
    "container.memory_limit": quantity, "container.ephemeral_storage": quantity, "container.gpu_limit": gpus_of,
    "container.gpu_request": gpus_of,
}  # fmt: skip


def tell_pod(spec: Node, container: Node, file: Document, resources: Resources) -> None:
    """Note the settings of a container; /dev/shm is 64 MiB where nothing is mounted there."""
    image = container.entry("image")
    if image is not None and image.value.is_scalar:
        resources.tell("container.image", str(image.value.value), file.path, "image", image.value.span)
    for name, path in (
        ("container.privileged", "securityContext.privileged"),
        ("container.gpu_limit", None),
        ("container.gpu_request", None),
        ("container.memory_limit", "resources.limits.memory"),
        ("container.ephemeral_storage", "resources.limits.ephemeral-storage"),
    ):
        entry = container.find(path) if path else _gpus(container, name.rpartition("_")[2] + "s")
        if entry is not None and entry.value.is_scalar:
            read = _READ.get(name)
            value = read(entry.value.value) if read is not None else entry.value.value
            if value is not None:
                resources.tell(name, value, file.path, str(entry.key.value), entry.value.span)
    tell_devices(spec, container, file, resources)
    tell_shared(spec, container, file, resources)


def _gpus(container: Node, section: str) -> Entry | None:
    asked = value_at(container, f"resources.{section}")
    entries = asked.entries() if asked is not None else ()
    return next((entry for entry in entries if str(entry.key.value) in GPU_RESOURCES), None)


def tell_devices(spec: Node, container: Node, file: Document, resources: Resources) -> None:
    """Any way but the usual limit by which a container may get a GPU: claims, other resources, a runtime class."""
    asked = [value_at(container, f"resources.{section}") for section in ("limits", "requests")]
    names = [str(entry.key.value) for part in asked if part is not None for entry in part.entries()]
    others = [name for name in names if "/" in name]
    if not others and container.find("resources.claims") is not None:
        others = ["claims"]
    for section in ("limits", "requests"):
        _misspelt(value_at(container, f"resources.{section}"), file, resources)
    others += [name for name in ("runtimeClassName", "resourceClaims") if spec.get(name) is not None]
    resources.told["container.devices"] = (others, Origin("derived", "the pod spec"))


def _misspelt(asked: Node | None, file: Document, resources: Resources) -> None:
    """A resource that is one letter off a GPU's: nothing offers it, so the pod waits for ever."""
    from difflib import get_close_matches

    for entry in asked.entries() if asked is not None else ():
        name = str(entry.key.value)
        if name in GPU_RESOURCES or name in _OTHER_RESOURCES or "container.misspelt_gpu" in resources.told:
            continue
        if near := get_close_matches(name.lower(), GPU_RESOURCES, 1, cutoff=_ONE_LETTER_OFF):
            resources.tell("container.misspelt_gpu", name, file.path, name, entry.key.span)
            resources.tell("container.meant_gpu", near[0], file.path, name, entry.key.span)


def tell_shared(spec: Node, container: Node, file: Document, resources: Resources) -> None:
    """Note the /dev/shm of a container, which is 64 MiB where nothing is mounted there."""
    if getattr(spec.get("hostIPC"), "value", None) is True:
        return
    mount = next(shared_mounts(container), None)
    if mount is None:
        if resources.shared_memory is None:
            resources.shared_memory = CONTAINER_SHARED_MEMORY
            resources.origins["shared_memory"] = Origin("default", "64 MiB, the default of container runtimes")
        return
    for volume in mappings(spec.get("volumes")):
        empty = volume.entry("emptyDir")
        if empty is not None and scalar(volume, "name") == mount:
            medium = empty.value.get("medium")
            span = medium.span if medium is not None else empty.key.span
            value = str(medium.value) if medium is not None and medium.value else "disk"
            resources.tell("container.shm_medium", value, file.path, "emptyDir.medium", span)


def shared_mounts(container: Node) -> Iterator[str]:
    """The names of the volumes that a container mounts at /dev/shm."""
    for mount in mappings(container.get("volumeMounts")):
        if scalar(mount, "mountPath").rstrip("/") == SHARED:
            yield scalar(mount, "name")
