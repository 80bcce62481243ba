"""Kubeflow: PyTorchJob, MPIJob and their kin (training-operator 1.9), TrainJob and its runtimes (Trainer 2.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....formats.core.coercion import as_integer
from ...commands.images import versions
from ...commands.jobs import jobs_of_commands
from ...launch import Launcher, Resources, Started
from ...shell.shell import Command, Word
from ..group import Member, jobs_of_group, resources_of
from ..manifests import launches, recogniser
from ..pod import (
    container_of,
    jobs_of_pod,
    listed,
    mappings,
    read_asked,
    read_node,
    variables_of,
)
from .jobset import members

if TYPE_CHECKING:
    from ....source.document import Document
    from ....source.node import Node
    from ..manifests import Manifests, Object

NAME = "kubeflow"

_REPLICAS = {
    "PyTorchJob": "spec.pytorchReplicaSpecs", "MPIJob": "spec.mpiReplicaSpecs", "TFJob": "spec.tfReplicaSpecs",
    "JAXJob": "spec.jaxReplicaSpecs", "PaddleJob": "spec.paddleReplicaSpecs", "XGBoostJob": "spec.xgbReplicaSpecs",
}  # fmt: skip
_LEADERS = ("Launcher", "Master", "Chief", "Worker")
_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


def read(item: Object, manifests: Manifests) -> Started:
    """The jobs of a training resource."""
    if item.kind in _REPLICAS:
        return _replicas(item, manifests)
    if item.kind == "TrainJob":
        return _train_job(item, manifests)
    return _runtime(item, manifests)


def _replicas(item: Object, manifests: Manifests) -> Started:
    """The job of the launcher or master, else of a worker: all of them run the same program."""
    section = item.root.find(_REPLICAS[item.kind])
    found = []
    for role in _LEADERS:
        replica = section.value.get(role) if section is not None else None
        spec = replica.find("template.spec") if replica is not None else None
        if replica is None or spec is None or not spec.value.is_mapping:
            continue
        count = replica.entry("replicas")
        found.append(Member(role, spec.value, as_integer(count.value.value) if count is not None else 1))
    return jobs_of_group(found, manifests.file, manifests.project, item.part)


def _runtime(item: Object, manifests: Manifests) -> Started:
    """What a runtime starts by itself; one without a command waits for a TrainJob of the same file or another."""
    spec = item.root.find("spec.template.spec")
    found = members(spec.value) if spec is not None else []
    trainer = _trainer(spec.value, found) if spec is not None else None
    if trainer is None:
        return Started([], [], "a training runtime without a trainer")
    if any(_runtime_name(other.root) == item.name for other in manifests.objects if other.kind == "TrainJob"):
        return Started([], [])
    if not any(container.get("command") or container.get("args") for container in mappings(trainer.get("containers"))):
        return Started([], [], "a training runtime; a TrainJob defines what it starts")
    resources = resources_of([Member("", trainer, _nodes(item.root.find("spec.mlPolicy.numNodes")))], manifests.file)
    return jobs_of_pod(trainer, manifests.file, manifests.project, item.part, None, resources)


def _train_job(item: Object, manifests: Manifests) -> Started:
    """The trainer's command on the nodes of the job; what it does not say is as in its runtime, if that is here."""
    file = manifests.file
    runtime = manifests.named(("ClusterTrainingRuntime", "TrainingRuntime"), _runtime_name(item.root))
    spec = runtime.root.find("spec.template.spec") if runtime is not None else None
    pod = _trainer(spec.value, members(spec.value)) if spec is not None else None
    base = next(iter(mappings(pod.get("containers"))), None) if pod is not None else None
    entry = item.root.find("spec.trainer")
    trainer = entry.value if entry is not None and entry.value.is_mapping else None
    resources = _resources(item, trainer, file)
    if runtime is not None and resources.nodes is None:
        _count_nodes(runtime.root.find("spec.mlPolicy.numNodes"), file, resources)
    if pod is not None and base is not None:
        read_asked(base.get("resources"), file, resources)
        read_node(pod, file, resources)
    own = listed(trainer.get("command")) + listed(trainer.get("args")) if trainer is not None else []
    if not own:
        if pod is None:
            return Started([], [], f"starts the runtime {_runtime_name(item.root)}, which is in another file")
        return jobs_of_pod(pod, file, manifests.project, item.part, None, resources)
    image = trainer.get("image") if trainer is not None else None
    base_container = container_of(base, file) if base is not None else None
    variables = dict(base_container.environment) if base_container is not None else {}
    command = list(base_container.command or []) if base_container is not None else []
    if trainer is not None:
        variables.update(variables_of(trainer, file))
        command = listed(trainer.get("command")) or command
        arguments = listed(trainer.get("args")) or (base_container.arguments if base_container is not None else [])
        command += arguments
    name = str(image.value) if image is not None else base_container.image if base_container is not None else ""
    words = tuple(_words(command, file, variables))
    return jobs_of_commands([Command(words, variables)], file, manifests.project, resources, item.part, versions(name))


def _words(nodes: list[Node], file: Document, variables: dict[str, Word]) -> list[Word]:
    from ..container import written

    return [written(file, node, variables) for node in nodes]


def _resources(item: Object, trainer: Node | None, file: Document) -> Resources:
    """`numNodes`, `resourcesPerNode`, and the node labels of patches (`podTemplateOverrides` before Trainer 2.2)."""
    resources = Resources()
    if trainer is not None:
        _count_nodes(trainer.find("numNodes"), file, resources)
        read_asked(trainer.get("resourcesPerNode"), file, resources)
    patches = [*mappings(_at(item.root, "spec.podTemplateOverrides"))]
    for patch in mappings(_at(item.root, "spec.runtimePatches")):
        jobs = patch.find("trainingRuntimeSpec.template.spec.replicatedJobs")
        patches += [
            found.value
            for job in mappings(jobs.value if jobs is not None else None)
            for found in (job.find("template.spec.template"),)
            if found is not None
        ]
    for patch in patches:
        spec = patch.get("spec")
        if spec is not None and spec.is_mapping:
            read_node(spec, file, resources)
    return resources


def _trainer(spec: Node, found: list[Member]) -> Node | None:
    """The pod that trains: labelled so, else the one called `node`."""
    jobs = [job for job in mappings(spec.get("replicatedJobs")) if job.find("template.spec.template.spec")]
    for job in jobs:
        labels = job.find("template.metadata.labels")
        step = labels.value.get(_STEP) if labels is not None else None
        pod = job.find("template.spec.template.spec")
        if step is not None and step.value == "trainer" and pod is not None:
            return pod.value
    return next((member.spec for member in found if member.role == "node"), None)


def _count_nodes(entry: object, file: Document, resources: Resources) -> None:
    from ....source.node import Entry

    if isinstance(entry, Entry):
        resources.state("nodes", _nodes(entry), file.path, "numNodes", entry.value.span)


def _nodes(entry: object) -> int | None:
    from ....source.node import Entry

    return as_integer(entry.value.value) if isinstance(entry, Entry) else 1


def _at(root: Node, path: str) -> Node | None:
    entry = root.find(path)
    return entry.value if entry is not None else None


def _runtime_name(root: Node) -> str:
    name = _at(root, "spec.runtimeRef.name")
    return str(name.value) if name is not None and name.is_scalar else ""


LAUNCHER = Launcher(
    NAME, "Kubeflow training resource", "Kubeflow Trainer 2.3", recogniser(NAME), launches,
    "GPUs of a pod x `replicas` or `numNodes`",
)  # fmt: skip
