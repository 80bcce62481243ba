"""Folders that a container sees under another name: bind mounts of Docker, host paths and parts of volumes of pods."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from ...job.origin import Origin
from ...models.resolve import is_known
from ..values import mappings, scalar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ...formats.core.format import Project, Reading
    from ...source.document import Document
    from ...source.node import Node

_MODEL_FIELDS = ("model", "inference.speculative_model", "rl.reward_model", "rl.teacher")
_SPECIFIC = re.compile(r"(?P<source>[^:]+):(?P<target>/[^:]*)(?::[\w,=]+)?")
"""`SOURCE:TARGET[:OPTIONS]` of docker run -v, of compose, of apptainer --bind and of pyxis --container-mounts."""


def bound(text: str) -> dict[str, str]:
    """The folder in the container and the one that stands for it, of a text such as `/srv/models:/model:ro`.

    A named volume says nothing of what lies in it.
    """
    match = _SPECIFIC.fullmatch(text.strip())
    if match is None or not match["source"].startswith(("/", ".", "~", "$")):
        return {}
    return {posixpath.normpath(match["target"]): match["source"]}


def bound_long(text: str) -> dict[str, str]:
    """The same of `type=bind,source=/srv/models,target=/model` (docker run --mount)."""
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    source = parts.get("source", parts.get("src", ""))
    target = parts.get("target", parts.get("destination", parts.get("dst", "")))
    return {posixpath.normpath(target): source} if source and target and parts.get("type", "") == "bind" else {}


def of_compose(service: Node) -> dict[str, str]:
    """The `volumes` of a service, short and long."""
    found: dict[str, str] = {}
    volumes = service.get("volumes")
    for item in volumes.items() if volumes is not None and volumes.is_sequence else ():
        if item.is_scalar:
            found |= bound(str(item.value))
        elif item.is_mapping and scalar(item, "source") and scalar(item, "target"):
            found |= bound(f"{scalar(item, 'source')}:{scalar(item, 'target')}")
    return found


def of_pod(spec: Node, container: Node) -> dict[str, str]:
    """The `volumeMounts` of a container whose volume is a path of the host or of a server, or a part of a volume."""
    paths: dict[str, str] = {}
    for volume in mappings(spec.get("volumes")):
        path = scalar(volume, "hostPath.path") or scalar(volume, "nfs.path")
        if path or volume.get("configMap") is None:
            paths[scalar(volume, "name")] = path
    found: dict[str, str] = {}
    for mount in mappings(container.get("volumeMounts")):
        target, part = scalar(mount, "mountPath"), scalar(mount, "subPath")
        source = posixpath.join(paths.get(scalar(mount, "name"), ""), part)
        if target and source.strip("/") and scalar(mount, "name") in paths:
            found[posixpath.normpath(target)] = source
    return found


def of_project(mounts: Mapping[str, str], project: Project) -> Project:
    """A project that opens the files of its own folders under the names that a container has for them."""
    if not mounts:
        return project

    def open_mounted(reference: str, from_path: str) -> Document | None:
        for path in _behind(reference, mounts):
            found = project.open(path, from_path)
            if found is not None:
                return found
        return project.open(reference, from_path)

    return project._replace(open=open_mounted)


def _behind(reference: str, mounts: Mapping[str, str]) -> Iterator[str]:
    """The paths outside that a path in the container may be, the longest mount first."""
    path = posixpath.normpath(reference)
    for target in sorted(mounts, key=len, reverse=True):
        if path == target or path.startswith(target.rstrip("/") + "/"):
            yield posixpath.join(mounts[target], path[len(target) :].lstrip("/")).rstrip("/")


def name_models(mounts: Mapping[str, str], reading: Reading, root: str) -> None:
    """The models of a job under the names that their folders have outside the container."""
    job = reading.job
    for field in _MODEL_FIELDS if mounts else ():
        named = job.get(field)
        if not isinstance(named, str) or not named.startswith("/") or is_known(named, root):
            continue
        outside = next((path for path in _behind(named, mounts) if is_known(path, root)), None)
        if outside is not None:
            stated = job.origins.get(field) or Origin("derived")
            job.assign(field, outside)
            job.origins[field] = stated._replace(note=f"{named} in the container is {outside} outside")
