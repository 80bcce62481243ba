"""Files that a pod mounts from ConfigMaps of the same manifest: a config that a command names by its absolute path."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from ..embedded import embedded
from .manifests import objects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...formats.core.format import Project
    from ...source.document import Document
    from ...source.node import Node


def mounted(spec: Node, container: Node, file: Document, project: Project) -> Project:
    """A project that also opens what the container mounts."""
    found = dict(_files(spec, container, file))
    if not found:
        return project

    def open_mounted(reference: str, from_path: str) -> Document | None:
        node = found.get(posixpath.normpath(reference))
        return embedded(file, node) if node is not None else project.open(reference, from_path)

    return project._replace(open=open_mounted)


def _files(spec: Node, container: Node, file: Document) -> Iterator[tuple[str, Node]]:
    """Path and text of every mounted key; `items` rename keys, `subPath` mounts one of them."""
    volumes = spec.get("volumes")
    wanted = {
        str(name.value): (source.value, volume.find("configMap.items"))
        for volume in (volumes.items() if volumes is not None else ())
        for name, source in ((volume.get("name"), volume.find("configMap.name")),)
        if name is not None and source is not None
    }
    if not wanted:
        return
    maps = {item.name: item.root.get("data") for item in objects(file) if item.kind == "ConfigMap"}
    mounts = container.get("volumeMounts")
    for mount in mounts.items() if mounts is not None else ():
        name, path, part = (mount.get(key) for key in ("name", "mountPath", "subPath"))
        if name is None or path is None or str(name.value) not in wanted:
            continue
        source, items = wanted[str(name.value)]
        data = maps.get(str(source.value))
        for entry in data.entries() if data is not None else ():
            shown = _path_of(str(entry.key.value), items.value if items is not None else None)
            if shown is not None and (part is None or part.value == shown):
                folder = str(path.value)
                yield posixpath.normpath(folder if part is not None else posixpath.join(folder, shown)), entry.value


def _path_of(key: str, items: Node | None) -> str | None:
    """The path of a key below the mount; None for one that `items` leaves out."""
    if items is None:
        return key
    for item in items.items():
        named, path = item.get("key"), item.get("path")
        if named is not None and named.value == key and path is not None:
            return str(path.value)
    return None
