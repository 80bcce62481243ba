"""Kubernetes pod specs: containers, GPU limits, node labels, /dev/shm (Kubernetes 1.37 API reference, core/v1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...formats.core.coercion import as_integer
from ...formats.core.placeholders import is_blank
from ...units import MIB
from ..commands.images import elsewhere
from ..launch import Resources, Started
from ..quantities import size
from .container import Container, environment, jobs_of_container
from .mounts import mounted
from .pod_settings import tell_pod

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ...formats.core.format import Project
    from ...hardware.catalogue import Instance
    from ...source.document import Document
    from ...source.node import Entry, Node
    from ..shell.shell import Word

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
    "amd.com/gpu.product-name",
    "beta.amd.com/gpu.product-name",
)
"""Node labels that name the GPU. Sources: feature discovery of NVIDIA and AMD, GKE, CoreWeave, Karpenter, EKS."""

_CARD_MEMORY = "karpenter.k8s.aws/instance-gpu-memory"
_PARTITION = "cloud.google.com/gke-gpu-partition-size"
_MIG = "nvidia.com/mig-"
INSTANCE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")


def jobs_of_pod(
    spec: Node,
    file: Document,
    project: Project,
    part: str,
    nodes: int | None = None,
    resources: Resources | None = None,
    variables: Mapping[str, Word] | None = None,
    *,
    mounts_shared_memory: bool = False,
) -> Started:
    """The jobs that a pod's containers start; `nodes` is how many such pods work together.

    Init containers are left out. `resources` is what the manifest says elsewhere, and wins; `variables` are
    those that a controller sets in every container, which may also mount /dev/shm.
    """
    launches, problems, reasons = [], [], []
    for container in mappings(spec.get("containers")):
        own = (resources or Resources()).copy()
        read_resources(spec, container, file, own)
        own.nodes = own.nodes or nodes
        if not mounts_shared_memory:
            tell_pod(spec, container, file, own)
        opening = mounted(spec, container, file, project)
        command = container_of(container, file, variables)
        device = elsewhere(command.image) if own.gpus_per_node is None else ""
        if device:
            reasons.append((False, f"its servers run on {device}, which gpulint does not estimate"))
            continue
        started = jobs_of_container(command, file, opening, own, _named(container, part))
        launches += started.launches
        problems += started.problems
        if started.reason:
            reasons.append((own.gpus_per_node is None, started.reason))
    first = min(reasons, key=lambda row: row[0])[1] if reasons else "has no container"
    return Started(launches, problems, "" if launches else first)


def container_of(node: Node, file: Document, given: Mapping[str, Word] | None = None) -> Container:
    """A container of a pod spec."""
    image = node.get("image")
    return Container(
        str(image.value) if image is not None and image.is_scalar else "",
        listed(node.get("command")) or None,
        listed(node.get("args")),
        {**(given or {}), **variables_of(node, file)},
    )


def variables_of(node: Node, file: Document) -> dict[str, Word]:
    """The environment of a container, as far as the manifest states its values."""
    return environment(
        [
            (str(name.value), file, value)
            for item in mappings(node.get("env"))
            for name, value in ((item.get("name"), item.get("value")),)
            if name is not None and value is not None
        ]
    )


def gpu_container(spec: Node, file: Document) -> tuple[Node | None, Resources]:
    """The container of a pod that asks for GPUs and what it runs on; else its first one."""
    first: tuple[Node | None, Resources] = (None, Resources())
    for container in mappings(spec.get("containers")):
        resources = Resources()
        read_resources(spec, container, file, resources)
        if resources.gpus_per_node is not None:
            return container, resources
        if first[0] is None:
            first = container, resources
    return first


def read_resources(spec: Node, container: Node, file: Document, resources: Resources) -> None:
    """Fill in the GPUs and memory of a container, and what its pod says of the node it wants."""
    read_asked(container.get("resources"), file, resources)
    read_node(spec, file, resources)
    _shared_memory(spec, container, file, resources)


def read_asked(section: Node | None, file: Document, resources: Resources) -> None:
    """Fill in what `limits` and `requests` say."""
    for name in ("limits", "requests"):
        asked = section.get(name) if section is not None else None
        for entry in asked.entries() if asked is not None else ():
            _asked(entry, file, resources)


def read_node(spec: Node, file: Document, resources: Resources) -> None:
    """Fill in the kind of GPU from the labels of the node that a pod wants."""
    read_labels(list(_labels(spec)), file, resources)


def _asked(entry: Entry, file: Document, resources: Resources) -> None:
    name = str(entry.key.value)
    if resources.gpus_per_node is None and (name in GPU_RESOURCES or name.startswith(_MIG)):
        number = as_integer(entry.value.value)
        resources.state("gpus_per_node", number or None, file.path, name, entry.value.span)
        if name.startswith(_MIG) and resources.gpu is None and number:
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
    for term in mappings(terms):
        for expression in mappings(term.get("matchExpressions")):
            key, values = expression.get("key"), expression.get("values")
            if key is not None and values is not None and len(values.items()) == 1:
                yield _entry(key, values.items()[0])


def read_labels(labels: Sequence[Entry], file: Document, resources: Resources) -> None:
    """The kind of GPU that node labels name."""
    for entry in labels:
        _label(entry, file, resources)
    for entry in labels:
        _size(entry, file, resources)


def _entry(key: Node, value: Node) -> Entry:
    from ...source.node import Entry

    return Entry(key, value)


def _label(entry: Entry, file: Document, resources: Resources) -> None:
    """The kind of GPU that a label names; a partition of a card is known once the card is."""
    name, value = str(entry.key.value), entry.value.value
    if not isinstance(value, str) or is_blank(value):
        return
    partition = resources.gpu is not None and resources.gpu.startswith("mig-")
    if resources.gpu is not None and not partition:
        return
    kind, note = "", ""
    if name in KIND_LABELS:
        kind = value
    elif name in INSTANCE_LABELS:
        machine = machine_of(value)
        kind, note = (machine.gpu.name, f"GPU of {value}") if machine is not None else ("", "")
    if kind:
        kind = f"{kind}-{resources.gpu}" if partition else kind
        resources.state("gpu", kind, file.path, name, entry.value.span, note)


def _size(entry: Entry, file: Document, resources: Resources) -> None:
    """Karpenter tells cards of one name apart by their memory in MiB; GKE names a partition beside the card.

    A card that the catalogue has in one size is that one: Karpenter's page gives 22,888 MiB for the 24 GB of an A10G
    or an L4, which is what EC2's DescribeInstanceTypes reports.
    """
    from ...hardware.catalogue import UnknownGpu, of_size

    if str(entry.key.value) == _PARTITION and resources.gpu is not None and "-mig-" not in resources.gpu:
        kind = f"{resources.gpu}-mig-{entry.value.value}"
        resources.state("gpu", kind, file.path, _PARTITION, entry.value.span)
    number = as_integer(entry.value.value) if str(entry.key.value) == _CARD_MEMORY else None
    if number and resources.gpu is not None and resources.gpu.isalnum():
        try:
            kind = of_size(resources.gpu, number * MIB).name
        except UnknownGpu:
            return
        resources.state("gpu", kind, file.path, _CARD_MEMORY, entry.value.span)


def machine_of(name: str) -> Instance | None:
    """The cloud machine of that name; those of SageMaker are EC2's with `ml.` in front."""
    from ...hardware.catalogue import instance

    return instance(name.removeprefix("ml."))


def _shared_memory(spec: Node, container: Node, file: Document, resources: Resources) -> None:
    """`/dev/shm` from an `emptyDir` in memory; its size is the limit, or half the node's memory without one."""
    mounts = {
        str(name.value)
        for mount in mappings(container.get("volumeMounts"))
        for name, path in ((mount.get("name"), mount.get("mountPath")),)
        if name is not None and path is not None and str(path.value).rstrip("/") == "/dev/shm"  # noqa: S108
    }
    for volume in mappings(spec.get("volumes")):
        name, limit = volume.get("name"), volume.find("emptyDir.sizeLimit")
        if name is not None and str(name.value) in mounts and limit is not None and resources.shared_memory is None:
            number = size(limit.value.value, binary=False)
            resources.state("shared_memory", number, file.path, "emptyDir.sizeLimit", limit.value.span)


def _named(container: Node, part: str) -> str:
    name = container.get("name")
    label = f"container {name.value}" if name is not None and name.is_scalar else "container"
    return f"{part}, {label}" if part else label


def listed(node: Node | None) -> list[Node]:
    """The items of a list, or a scalar as the only one."""
    if node is None:
        return []
    return node.items() if node.is_sequence else [node] if node.is_scalar and node.value is not None else []


def mappings(node: Node | None) -> list[Node]:
    """The items of a list that are mappings."""
    return [item for item in node.items() if item.is_mapping] if node is not None else []
