"""Kubernetes pod specs: containers, GPU limits, node labels, /dev/shm (Kubernetes 1.34 API reference, core/v1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..formats.coercion import as_integer
from .container import Container, environment, jobs_of_container
from .launch import Resources, Started
from .quantities import size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..formats.format import Project
    from ..source.document import Document
    from ..source.node import Entry, Node

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "nvidia.com/gpu.shared")
KIND_LABELS = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "gpu.nvidia.com/model",
    "gpu.nvidia.com/class",
    "karpenter.k8s.aws/instance-gpu-name",
    "eks.amazonaws.com/instance-gpu-name",
    "accelerator",
    "node.kubernetes.io/accelerator",
)
"""Node labels that name the kind of GPU. Sources: NVIDIA GPU feature discovery, GKE, CoreWeave, Karpenter, EKS docs."""

INSTANCE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")


def jobs_of_pod(
    spec: Node,
    file: Document,
    project: Project,
    part: str,
    nodes: int | None = None,
    resources: Resources | None = None,
) -> Started:
    """The jobs that a pod's containers start; `nodes` is how many such pods work together.

    Init containers are left out. `resources` is what the manifest says elsewhere, and wins.
    """
    launches, problems, reasons = [], [], []
    for container in _mappings(spec.get("containers")):
        own = (resources or Resources()).copy()
        read_resources(spec, container, file, own)
        own.nodes = own.nodes or nodes
        started = jobs_of_container(container_of(container, file), file, project, own, _named(container, part))
        launches += started.launches
        problems += started.problems
        if started.reason:
            reasons.append(started.reason)
    return Started(launches, problems, "" if launches else reasons[0] if reasons else "holds no container")


def container_of(node: Node, file: Document) -> Container:
    """A container of a pod spec."""
    command, arguments = node.get("command"), node.get("args")
    variables = [
        (str(name.value), file, value)
        for item in _mappings(node.get("env"))
        for name, value in ((item.get("name"), item.get("value")),)
        if name is not None and value is not None
    ]
    image = node.get("image")
    return Container(
        str(image.value) if image is not None and image.is_scalar else "",
        _listed(command) or None,
        _listed(arguments),
        environment(variables),
    )


def read_resources(spec: Node, container: Node, file: Document, resources: Resources) -> None:
    """Fill in the GPUs and memory of a container, and what its pod says of the node it wants."""
    for section in ("limits", "requests"):
        asked = container.find(f"resources.{section}")
        for entry in asked.value.entries() if asked else ():
            _asked(entry, file, resources)
    read_labels(_labels(spec), file, resources)
    _shared_memory(spec, container, file, resources)


def _asked(entry: Entry, file: Document, resources: Resources) -> None:
    name = str(entry.key.value)
    if resources.gpus_per_node is None and (name in GPU_RESOURCES or name.startswith("nvidia.com/mig-")):
        number = as_integer(entry.value.value)
        resources.state("gpus_per_node", number or None, file.path, name, entry.value.span)
        if name.startswith("nvidia.com/mig-") and resources.gpu is None and number:
            resources.state("gpu", name.rpartition("/")[2], file.path, name, entry.key.span)
    elif name == "memory" and resources.host_memory is None:
        number = size(entry.value.value, binary=False)
        resources.state("host_memory", number, file.path, name, entry.value.span)


def _labels(spec: Node) -> Iterator[Entry]:
    """Node labels that the pod asks for: `nodeSelector`, and required node affinity with one value."""
    selector = spec.get("nodeSelector")
    yield from selector.entries() if selector is not None else ()
    terms = spec.find("affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms")
    yield from labels_of(terms.value if terms else None)


def labels_of(terms: Node | None) -> Iterator[Entry]:
    """The labels with one value of `nodeSelectorTerms`."""
    for term in _mappings(terms):
        for expression in _mappings(term.get("matchExpressions")):
            key, values = expression.get("key"), expression.get("values")
            if key is not None and values is not None and len(values.items()) == 1:
                yield _entry(key, values.items()[0])


def read_labels(labels: Iterable[Entry], file: Document, resources: Resources) -> None:
    """The kind of GPU that node labels name."""
    for entry in labels:
        _label(entry, file, resources)


def _entry(key: Node, value: Node) -> Entry:
    from ..source.node import Entry

    return Entry(key, value)


def _label(entry: Entry, file: Document, resources: Resources) -> None:
    name, value = str(entry.key.value), entry.value.value
    if not isinstance(value, str) or resources.gpu is not None:
        return
    if name in KIND_LABELS:
        resources.state("gpu", value, file.path, name, entry.value.span)
    elif name in INSTANCE_LABELS:
        from ..hardware.catalogue import instance

        machine = instance(value)
        if machine is not None:
            resources.state("gpu", machine.gpu.name, file.path, name, entry.value.span, f"GPU of {value}")


def _shared_memory(spec: Node, container: Node, file: Document, resources: Resources) -> None:
    """`/dev/shm` from an `emptyDir` in memory; its size is the limit, or half the node's memory without one."""
    mounts = {
        str(name.value)
        for mount in _mappings(container.get("volumeMounts"))
        for name, path in ((mount.get("name"), mount.get("mountPath")),)
        if name is not None and path is not None and str(path.value).rstrip("/") == "/dev/shm"  # noqa: S108
    }
    for volume in _mappings(spec.get("volumes")):
        name, limit = volume.get("name"), volume.find("emptyDir.sizeLimit")
        if name is not None and str(name.value) in mounts and limit is not None:
            number = size(limit.value.value, binary=False)
            resources.state("shared_memory", number, file.path, "emptyDir.sizeLimit", limit.value.span)


def _named(container: Node, part: str) -> str:
    name = container.get("name")
    label = f"container {name.value}" if name is not None and name.is_scalar else "container"
    return f"{part}, {label}" if part else label


def _listed(node: Node | None) -> list[Node]:
    if node is None:
        return []
    return node.items() if node.is_sequence else [node] if node.is_scalar and node.value is not None else []


def _mappings(node: Node | None) -> list[Node]:
    return [item for item in node.items() if item.is_mapping] if node is not None else []
