"""Custom resources that no module reads: the pods that stand in them (RoleBasedGroup, DynamoGraphDeployment, Rollout).

A pod spec is a mapping with `containers`, wherever it stands. A service of a Dynamo graph has an `extraPodSpec` with a
`mainContainer`, and its GPUs beside that (ai-dynamo 0.7, `nvidia.com/v1alpha1`). Pods below a key that speaks of
leaders and workers, and those of more than one node, share a job in a way that only their controller knows: they are
left out. So is what a controller mounts at /dev/shm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...source.node import Entry, Node
from ..launch import Launcher, Resources, Started, combined
from ..values import mappings, scalar
from .manifests import launches, objects, others
from .pod import jobs_of_pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...source.document import Document
    from .manifests import Manifests, Object

NAME = "custom_resource"
MAX_DEPTH = 12
"""Levels of a custom resource that are searched for pods."""


class _Pod(NamedTuple):
    """A pod spec, the name of the part of the resource that holds it, and whether it works in a group.

    `gpus` is the entry that counts its GPUs, where that stands outside.
    """

    spec: Node
    role: str
    grouped: bool
    gpus: Entry | None = None


def recognise(document: Document) -> bool:
    """Whether an object of a group of its own, which no module reads, holds a pod."""
    return any(holds_pod(item.root) for item in objects(document) if others(item))


def holds_pod(root: Node) -> bool:
    """Whether a pod stands anywhere in a tree."""
    return next(_pods(root), None) is not None


def read(item: Object, manifests: Manifests) -> Started:
    """The jobs of every pod that stands alone."""
    return combined((_jobs(pod, item, manifests) for pod in _pods(item.root)), "has no pod")


def _jobs(pod: _Pod, item: Object, manifests: Manifests) -> Started:
    if pod.grouped:
        return Started([], [], "its pods form groups that gpulint does not know")
    part = f"{item.part}, {pod.role}" if pod.role else item.part
    resources = Resources()
    resources.read("gpus_per_node", pod.gpus, manifests.file.path, "resources.limits.gpu")
    return jobs_of_pod(pod.spec, manifests.file, manifests.project, part, None, resources, mounts_shared_memory=True)


def _pods(node: Node, depth: int = 0, role: str = "", *, grouped: bool = False) -> Iterator[_Pod]:
    if depth > MAX_DEPTH:
        return
    if node.is_sequence:
        for item in node.items():
            # `roles: [{name: prefill, template: ...}]`
            yield from _pods(item, depth + 1, scalar(item, "name") or role, grouped=grouped)
        return
    if not node.is_mapping:
        return
    if any(entry.key.value == "containers" and mappings(entry.value) for entry in node.entries()):
        yield _Pod(node, role, grouped)
        return
    main = node.find("extraPodSpec.mainContainer")
    if main is not None and main.value.is_mapping:
        yield _of_graph(node, main, role, grouped=grouped or node.get("multinode") is not None)
        return
    for entry in node.entries():
        key = str(entry.key.value)
        together = grouped or (key[:1].islower() and ("leader" in key.lower() or "worker" in key.lower()))
        found = key if role == _SERVICES else _SERVICES if key == _SERVICES else scalar(entry.value, "name") or role
        yield from _pods(entry.value, depth + 1, found, grouped=together)


_SERVICES = "services"


def _of_graph(service: Node, main: Entry, role: str, *, grouped: bool) -> _Pod:
    """The pod of a service of a Dynamo graph."""
    outer = service.get("extraPodSpec")
    key = Node("scalar", "containers", main.key.span, "containers")
    listed = Entry(key, Node("sequence", [main.value], main.value.span))
    spec = Node("mapping", [*(outer.entries() if outer is not None else ()), listed], main.value.span)
    gpus = service.find("resources.limits.gpu") or service.find("resources.requests.gpu")
    return _Pod(spec, role, grouped, gpus)


LAUNCHER = Launcher(
    NAME, "Custom resource with pods", "Kubernetes 1.37", recognise, launches, "limits of `nvidia.com/gpu`, node labels"
)
