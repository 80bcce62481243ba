"""Objects of Kubernetes and services of Compose that are refused, or whose parts contradict each other.

Sources: Kubernetes 1.37 `pkg/apis/batch/validation` (a Job's restartPolicy), `pkg/apis/apps/validation` (selector and
labels); training-operator 1.9 `pkg/webhooks/pytorch/pytorchjob_webhook.go`; mpi-operator 0.6 `pkg/apis/kubeflow/
validation`; KubeRay 1.7 docs, rayStartParams; compose-spec 2025 `deploy.md`, devices.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from ...formats.core.coercion import as_integer
from ...formats.core.format import Problem
from ..kubernetes.pod_settings import GPU_RESOURCES
from ..values import count, listed, mapping_at, mappings, scalar, value_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...source.document import Document
    from ...source.node import Entry, Node, Span
    from ..containers.services import Manifest

_SELECTING = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "DaemonSet"})


def refused_manifest(item: Manifest, file: Document) -> Iterator[Problem]:
    """What the API server or a controller refuses of an object."""
    if item.group == "apps" and item.kind in _SELECTING:
        yield from _selector(item.root, file)
    elif item.group == "batch" and item.kind in ("Job", "CronJob"):
        yield from _restart(item, file)
    elif item.kind == "PyTorchJob":
        yield from _pytorch(item.root, file)
    elif item.kind == "MPIJob":
        yield from _mpi(item.root, file)
    elif item.group == "ray.io":
        yield from _ray(item.root, file)


def _refused(file: Document, key: str, span: Span, reason: str, suggestion: str) -> Problem:
    return Problem("refused-launch", key, span, {"reason": reason, "suggestion": suggestion}, file.path)


def _selector(root: Node, file: Document) -> Iterator[Problem]:
    wanted, labels = mapping_at(root, "spec.selector.matchLabels"), mapping_at(root, "spec.template.metadata.labels")
    for entry in wanted.entries() if wanted is not None else ():
        key, value = str(entry.key.value), entry.value.value
        given = labels.get(key) if labels is not None else None
        if "{{" in str(value) or (given is not None and "{{" in str(given.value)):
            return
        if given is None or given.value != value:
            why = f"the selector asks for {key}={value}, which the template's labels do not have"
            yield _refused(
                file, "matchLabels", entry.value.span, why, f"`{key}: {value}` among the labels of the template"
            )
            return


def _restart(item: Manifest, file: Document) -> Iterator[Problem]:
    path = "spec.template.spec" if item.kind == "Job" else "spec.jobTemplate.spec.template.spec"
    spec = mapping_at(item.root, path)
    policy = spec.entry("restartPolicy") if spec is not None else None
    if spec is None or (policy is not None and policy.value.value in ("Never", "OnFailure")):
        return
    if policy is None and mappings(spec.get("containers")):
        key = item.root.find(path)
        span = key.key.span if key is not None else spec.span
    elif policy is not None and policy.value.value == "Always":
        span = policy.value.span
    else:
        return
    why = "a Job's restartPolicy is Never or OnFailure; the API server refuses Always, which is the default"
    yield _refused(file, "restartPolicy", span, why, "`restartPolicy: Never`")


def _replicas(root: Node, role: str, path: str) -> tuple[Node | None, Entry | None]:
    section = mapping_at(root, f"{path}.{role}")
    return section, section.entry("replicas") if section is not None else None


def _pytorch(root: Node, file: Document) -> Iterator[Problem]:
    path = "spec.pytorchReplicaSpecs"
    master, replicas = _replicas(root, "Master", path)
    if replicas is not None and (as_integer(replicas.value.value) or 1) > 1:
        why = "a PyTorchJob has one Master; the operator refuses more"
        yield _refused(
            file, "replicas", replicas.value.span, why, "`replicas: 1` for the Master, the others are Workers"
        )
    for section in (master, _replicas(root, "Worker", path)[0]):
        containers = mappings(value_at(section, "template.spec.containers"))
        names = [scalar(container, "name") for container in containers]
        if names and "pytorch" not in names and not any("{{" in name for name in names):
            at = containers[0].entry("name")
            span = at.value.span if at is not None else containers[0].span
            why = "a PyTorchJob's container is called `pytorch`; the operator refuses a pod without one"
            yield _refused(file, "name", span, why, "`name: pytorch`")
            return


def _mpi(root: Node, file: Document) -> Iterator[Problem]:
    worker, replicas = _replicas(root, "Worker", "spec.mpiReplicaSpecs")
    slots = root.find("spec.slotsPerWorker")
    each = as_integer(slots.value.value) if slots is not None else None
    pods = as_integer(replicas.value.value) if replicas is not None else 1
    gpus = _gpus(worker)
    if slots is not None and each and gpus is not None and each > gpus > 0:
        why = f"mpirun starts {each} ranks on each worker, which has {gpus} GPUs"
        yield _refused(file, "slotsPerWorker", slots.value.span, why, f"`slotsPerWorker: {gpus}`")
    launcher = next(iter(mappings(value_at(root, "spec.mpiReplicaSpecs.Launcher.template.spec.containers"))), None)
    words = [*listed(value_at(launcher, "command")), *listed(value_at(launcher, "args"))]
    for flag, number in pairwise(words):
        ranks = as_integer(number.value)
        if flag.value in ("-np", "-n", "--np") and ranks and each and pods and ranks > each * pods:
            why = f"mpirun is to start {ranks} ranks, but {pods} workers with {each} slots have {each * pods}: it stops"
            yield _refused(file, "np", number.span, why, f"`-np {each * pods}`, or more slots or workers")
        if flag.value in ("-np", "-n", "--np"):
            return  # what follows may be the program's own


def _gpus(section: Node | None) -> int | None:
    """The GPUs of the containers of a replica or a group."""
    for container in mappings(value_at(section, "template.spec.containers")):
        limits = mapping_at(container, "resources.limits")
        for entry in limits.entries() if limits is not None else ():
            if str(entry.key.value) in GPU_RESOURCES:
                return count(entry.value.value)
    return None


def _ray(root: Node, file: Document) -> Iterator[Problem]:
    clusters = [value_at(root, path) for path in ("spec", "spec.rayClusterSpec", "spec.rayClusterConfig")]
    groups = [group for cluster in clusters for group in mappings(value_at(cluster, "workerGroupSpecs"))]
    heads = [head for cluster in clusters if (head := mapping_at(cluster, "headGroupSpec")) is not None]
    for group in (*heads, *groups):
        stated, there = group.find("rayStartParams.num-gpus"), _gpus(group)
        told = as_integer(stated.value.value) if stated is not None else None
        if stated is not None and told and there is not None and told > there:
            why = f"Ray is told of {told} GPUs in a pod that has {there}: what it places on the others finds no device"
            yield _refused(
                file, "num-gpus", stated.value.span, why, f'`num-gpus: "{there}"`, or nothing: KubeRay reads the limit'
            )


def refused_devices(service: Node, file: Document) -> Iterator[Problem]:
    """What Compose refuses of the GPUs that a service reserves."""
    for device in mappings(value_at(service, "deploy.resources.reservations.devices")):
        number, ids = device.entry("count"), device.entry("device_ids")
        if device.get("capabilities") is None:
            first = device.entries()[0]
            why = "a device without `capabilities` is refused by Compose"
            yield _refused(file, "devices", first.key.span, why, "`capabilities: [gpu]`")
        if number is not None and ids is not None:
            why = "`count` and `device_ids` exclude each other, and Compose stops"
            yield _refused(file, "device_ids", ids.key.span, why, "one of them")
