"""Kubernetes pod specs: containers, GPU limits, node labels, /dev/shm (Kubernetes 1.37 API reference, core/v1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...formats.core.coercion import as_integer
from ...formats.core.placeholders import is_blank
from ...job.origin import Origin
from ...source.node import Entry
from ...units import MIB
from ..commands.images import elsewhere, not_estimated
from ..containers.mounts import of_pod
from ..containers.probes import tell_probes
from ..launch import Resources, Started, combined
from ..machines import machine_of, other_family, tell_machine
from ..quantities import quantity
from ..values import count, listed, mappings, scalar, value_at
from .container import Container, jobs_of_container, variables_of
from .mounts import mounted
from .pod_settings import GPU_RESOURCES, shared_mounts, tell_pod

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ...formats.core.format import Project
    from ...source.document import Document
    from ...source.node import Node
    from ..shell.shell import Word

GPUS = (*GPU_RESOURCES, "nvidia.com/gpu.shared")
"""Resources that count as a GPU each; a shared one is a GPU that pods take turns on (NVIDIA's device plugin)."""

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
    found = []
    containers = mappings(spec.get("containers"))
    beside = any(scalar(init, "restartPolicy") == "Always" for init in mappings(spec.get("initContainers")))
    for container in containers:
        own = (resources or Resources()).copy()
        read_resources(spec, container, file, own)
        own.nodes = own.nodes or nodes
        if nodes is not None:
            own.told["each_node"] = (True, Origin("derived", "every pod runs it"))
        if not mounts_shared_memory:
            tell_pod(spec, container, file, own)
        tell_probes(container, file, own, alone=len(containers) == 1 and not beside)
        own.mounts |= of_pod(spec, container)
        opening = mounted(spec, container, file, project)
        command = container_of(container, file, variables)
        device = elsewhere(command.image) if own.gpus_per_node is None else ""
        if device:
            found.append((False, Started([], [], not_estimated(device))))
        else:
            started = jobs_of_container(command, file, opening, own, _named(container, part))
            found.append((own.gpus_per_node is None, started))
    # why a container with GPUs starts none comes before what a sidecar does
    first = min((row for row in found if row[1].reason), key=lambda row: row[0], default=None)
    started = combined((row[1] for row in found), "has no container")
    return started if started.launches or first is None else started._replace(reason=first[1].reason)


def container_of(node: Node, file: Document, given: Mapping[str, Word] | None = None) -> Container:
    """A container of a pod spec."""
    return Container(
        scalar(node, "image"),
        listed(node.get("command")) or None,
        listed(node.get("args")),
        {**(given or {}), **variables_of(node.get("env"), file)},
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
        asked = value_at(section, name)
        for entry in asked.entries() if asked is not None else ():
            _asked(entry, file, resources, limits=name == "limits")


def read_node(spec: Node, file: Document, resources: Resources) -> None:
    """Fill in the kind of GPU from the labels of the node that a pod wants."""
    read_labels(list(_labels(spec)), file, resources)


def _asked(entry: Entry, file: Document, resources: Resources, *, limits: bool) -> None:
    """GPUs of either section; a container may use more memory than it requests, up to its limit."""
    name = str(entry.key.value)
    if resources.gpus_per_node is None and (name in GPUS or name.startswith(_MIG)):
        resources.read("gpus_per_node", entry, file.path, parse=count)
        if name.startswith(_MIG) and resources.gpu is None and resources.gpus_per_node:
            resources.state("gpu", name.rpartition("/")[2], file.path, name, entry.key.span)
            stated = resources.origins["gpu"]
            resources.origins["gpu"] = stated._replace(kind="assumed", note="the newest card that is cut so")
    elif name == "memory" and limits and resources.host_memory is None:
        resources.read("host_memory", entry, file.path, parse=quantity)


def _labels(spec: Node) -> Iterator[Entry]:
    """Node labels that the pod asks for: `nodeSelector`, and required node affinity with one value."""
    selector = spec.get("nodeSelector")
    yield from selector.entries() if selector is not None else ()
    required = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    yield from labels_of(value_at(spec, f"{required}.nodeSelectorTerms"))


def labels_of(terms: Node | None) -> Iterator[Entry]:
    """The labels with one value of `nodeSelectorTerms`."""
    for term in mappings(terms):
        for expression in mappings(term.get("matchExpressions")):
            key, values = expression.get("key"), expression.get("values")
            if key is not None and values is not None and len(values.items()) == 1:
                yield Entry(key, values.items()[0])


def read_labels(labels: Sequence[Entry], file: Document, resources: Resources) -> None:
    """The kind of GPU that node labels name; none where one label contradicts another."""
    for entry in labels:
        _label(entry, file, resources)
    for entry in labels:
        _size(entry, file, resources)
    _contradiction(labels, file, resources)


def _contradiction(labels: Sequence[Entry], file: Document, resources: Resources) -> None:
    """No node has both labels where the named machine has another card than the one that is named."""
    stated = {str(entry.key.value): entry for entry in labels if isinstance(entry.value.value, str)}
    named = (machine_of(stated[name].value.value) for name in INSTANCE_LABELS if name in stated)
    machine = next((found for found in named if found is not None), None)
    if machine is None:
        return
    for name in KIND_LABELS:
        title = other_family(machine, str(stated[name].value.value)) if name in stated else None
        if title is not None:
            resources.tell("labels.other_gpu", title, file.path, name, stated[name].value.span)
            resources.gpu = None


def _label(entry: Entry, file: Document, resources: Resources) -> None:
    """The kind of GPU that a label names; a partition of a card is known once the card is."""
    name, value = str(entry.key.value), entry.value.value
    if not isinstance(value, str) or is_blank(value):
        return
    machine = machine_of(value) if name in INSTANCE_LABELS else None
    if machine is not None:
        tell_machine(machine, resources, file.path, name, entry.value.span)
    partition = resources.gpu is not None and resources.gpu.startswith("mig-")
    if resources.gpu is not None and not partition:
        return
    kind, note = "", ""
    if name in KIND_LABELS:
        kind = value
    elif machine is not None:
        kind, note = machine.gpu.name, f"GPU of {value}"
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


def _shared_memory(spec: Node, container: Node, file: Document, resources: Resources) -> None:
    """`/dev/shm` from an `emptyDir` in memory; its size is the limit, or half the node's memory without one."""
    mounts = set(shared_mounts(container))
    for volume in mappings(spec.get("volumes")):
        if scalar(volume, "name") in mounts and resources.shared_memory is None:
            limit = volume.find("emptyDir.sizeLimit")
            resources.read("shared_memory", limit, file.path, "emptyDir.sizeLimit", quantity)


def _named(container: Node, part: str) -> str:
    name = scalar(container, "name")
    label = f"container {name}" if name else "container"
    return f"{part}, {label}" if part else label
