"""Helm values of the bjw-s app-template chart (4.x): `controllers.NAME.containers.NAME`, for any image.

Facts from its common library (`templates/lib/container/`): an image is a repository and a tag, a command or arguments
given as one string are one word, and the environment is a mapping or a list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...source.node import Entry, Node
from ..launch import Launcher, Started, combined
from ..values import scalar, text
from .manifest import key_node, scalar_at
from .pod import jobs_of_pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...formats.core.format import Project
    from ...source.document import Document

NAME = "app_template"

_WHOLE = ("resources", "envFrom", "securityContext")
_OF_PODS = ("nodeSelector", "affinity", "tolerations", "runtimeClassName", "hostIPC")


def recognise(document: Document) -> bool:
    """`controllers`, of which one has a mapping of containers with an image of a repository."""
    return any(text(container, "image.repository") for _, container, _ in _containers(document.root, switched_off=True))


def launches(document: Document, project: Project) -> Started:
    """The jobs of every container; the copies of a controller each run on their own."""
    started = (
        jobs_of_pod(_pod(document, container, controller), document, project, part, mounts_shared_memory=True)
        for part, container, controller in _containers(document.root)
    )
    return combined(started, "has no container")


def _containers(root: Node, *, switched_off: bool = False) -> Iterator[tuple[str, Node, Node]]:
    """The containers with the names of controller and container, and the controller of each.

    Without those of a controller that is not `enabled` (common library, `controller.enabledControllers`).
    """
    controllers = root.get("controllers")
    for controller in controllers.entries() if controllers is not None else ():
        held = controller.value.get("containers")
        if scalar(controller.value, "enabled").lower() == "false" and not switched_off:
            continue
        for container in held.entries() if held is not None else ():
            if container.value.is_mapping:
                name = f"controller {controller.key.value}, container {container.key.value}"
                yield name, container.value, controller.value


def _pod(document: Document, container: Node, controller: Node) -> Node:
    """A pod spec of one container, in Kubernetes' words; the controller's `pod` wins over `defaultPodOptions`."""
    repository, tag = container.find("image.repository"), text(container, "image.tag")
    entries: list[Entry] = []
    if repository is not None:
        name = f"{repository.value.value}:{tag}" if tag else str(repository.value.value)
        image = scalar_at(document, name, repository.value)
        entries.append(Entry(key_node(document, "image", repository.key), image))
    for key in ("command", "args"):
        given = container.entry(key)
        if given is not None:
            value = given.value if given.value.is_sequence else Node("sequence", [given.value], given.value.span)
            entries.append(Entry(given.key, value))
    entries += [entry for key in _WHOLE if (entry := container.entry(key)) is not None]
    environment = container.entry("env")
    if environment is not None:
        entries.append(Entry(environment.key, _environment(document, environment.value)))
    listed = Node("sequence", [Node("mapping", entries, container.span)], container.span)
    options = [node for node in (controller.get("pod"), document.root.get("defaultPodOptions")) if node is not None]
    found = (next((entry for node in options if (entry := node.entry(key)) is not None), None) for key in _OF_PODS)
    placed = [entry for entry in found if entry is not None]
    return Node("mapping", [Entry(key_node(document, "containers", container), listed), *placed], container.span)


def _environment(document: Document, given: Node) -> Node:
    """The variables as Kubernetes lists them; a value may be a mapping of its own."""
    if not given.is_mapping:
        return given
    items = []
    for entry in given.entries():
        value = entry.value.get("value") if entry.value.is_mapping else entry.value
        if value is not None and value.is_scalar:
            pair = [Entry(key_node(document, "name", entry.key), entry.key)]
            items.append(Node("mapping", [*pair, Entry(key_node(document, "value", value), value)], entry.value.span))
    return Node("sequence", items, given.span)


LAUNCHER = Launcher(
    NAME, "app-template values", "bjw-s app-template 4.x", recognise, launches,
    "`resources.limits`, node labels of a controller's `pod` or in `defaultPodOptions`",
)  # fmt: skip
