"""Kubeflow: PyTorchJob, MPIJob and their kin (training-operator 1.9), TrainJob and its runtimes (Trainer 2.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....formats.core.coercion import as_integer
from ....repository.images import versions
from ...commands.jobs import jobs_of_commands
from ...launch import Launcher, Resources, Started
from ...shell.shell import Command
from ...values import listed, mapping_at, mappings, scalar, value_at
from ..container import Container, variables_of, written
from ..group import Member, jobs_of_group, pods_of, resources_of
from ..manifests import launches, recogniser
from ..pod import container_of, jobs_of_pod, read_asked, read_node
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
_NODES = "spec.mlPolicy.numNodes"
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
    replicas = ((role, value_at(item.root, f"{_REPLICAS[item.kind]}.{role}")) for role in _LEADERS)
    found = [
        each
        for role, replica in replicas
        if replica is not None
        for each in pods_of(role, replica.find("template.spec"), replica.get("replicas"))
    ]
    started = jobs_of_group(found, manifests.file, manifests.project, item.part)
    if item.root.find("spec.elasticPolicy") is None:
        return started
    # the number of pods changes while it runs
    problems = [problem for problem in started.problems if problem.kind != "missing-nodes"]
    return started._replace(problems=problems, bare=[])


def _runtime(item: Object, manifests: Manifests) -> Started:
    """What a runtime starts by itself; one without a command waits for a TrainJob of the same file or another."""
    trainer = _trainer(item.root)
    if trainer is None:
        return Started([], [], "a training runtime without a trainer")
    if manifests.used_by("TrainJob", "spec.runtimeRef.name", item.name):
        return Started([], [])
    if not any(container.get("command") or container.get("args") for container in mappings(trainer.get("containers"))):
        return Started([], [], "a training runtime; a TrainJob defines what it starts")
    nodes = value_at(item.root, _NODES)
    resources = resources_of([Member("", trainer, as_integer(nodes.value) if nodes is not None else 1)], manifests.file)
    return jobs_of_pod(trainer, manifests.file, manifests.project, item.part, None, resources)


def _train_job(item: Object, manifests: Manifests) -> Started:
    """The trainer's command on the nodes of the job; what it does not say is as in its runtime, if that is here."""
    file = manifests.file
    runtime = manifests.named(("ClusterTrainingRuntime", "TrainingRuntime"), _runtime_name(item.root))
    pod = _trainer(runtime.root) if runtime is not None else None
    base = next(iter(mappings(value_at(pod, "containers"))), None)
    trainer = mapping_at(item.root, "spec.trainer")
    resources = _resources(item, trainer, file)
    if runtime is not None and resources.nodes is None:
        resources.read("nodes", runtime.root.find(_NODES), file.path)
    if pod is not None and base is not None:
        read_asked(base.get("resources"), file, resources)
        read_node(pod, file, resources)
    command, arguments = listed(value_at(trainer, "command")), listed(value_at(trainer, "args"))
    if not command and not arguments:
        if pod is None:
            return Started([], [], f"starts the runtime {_runtime_name(item.root)}, which is in another file")
        return jobs_of_pod(pod, file, manifests.project, item.part, None, resources)
    below = container_of(base, file) if base is not None else Container("", None, (), {})
    variables = {**below.environment, **variables_of(value_at(trainer, "env"), file)}
    nodes = (*(command or below.command or ()), *(arguments or below.arguments))
    words = tuple(written(file, node, variables) for node in nodes)
    image = scalar(trainer, "image") or below.image
    return jobs_of_commands([Command(words, variables)], file, manifests.project, resources, item.part, versions(image))


def _resources(item: Object, trainer: Node | None, file: Document) -> Resources:
    """`numNodes`, `resourcesPerNode`, and the node labels of patches (`podTemplateOverrides` before Trainer 2.2)."""
    resources = Resources()
    if trainer is not None:
        resources.read("nodes", trainer.find("numNodes"), file.path)
        read_asked(trainer.get("resourcesPerNode"), file, resources)
    specs = [mapping_at(patch, "spec") for patch in mappings(value_at(item.root, "spec.podTemplateOverrides"))]
    for patch in mappings(value_at(item.root, "spec.runtimePatches")):
        jobs = mappings(value_at(patch, "trainingRuntimeSpec.template.spec.replicatedJobs"))
        specs += [mapping_at(job, "template.spec.template.spec") for job in jobs]
    for spec in specs:
        if spec is not None:
            read_node(spec, file, resources)
    return resources


def _trainer(runtime: Node) -> Node | None:
    """The pod that trains: labelled so, else the one called `node`."""
    spec = value_at(runtime, "spec.template.spec")
    for job in mappings(value_at(spec, "replicatedJobs")):
        labels, pod = value_at(job, "template.metadata.labels"), value_at(job, "template.spec.template.spec")
        step = labels.get(_STEP) if labels is not None else None
        if step is not None and step.value == "trainer" and pod is not None:
            return pod
    return next((pod.spec for pod in members(spec) if pod.role == "node"), None) if spec is not None else None


def _runtime_name(root: Node) -> str:
    return scalar(root, "spec.runtimeRef.name")


LAUNCHER = Launcher(
    NAME, "Kubeflow training resource", "Kubeflow Trainer 2.3", recogniser(NAME), launches,
    "GPUs of a pod x `replicas` or `numNodes`",
)  # fmt: skip
