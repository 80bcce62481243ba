"""Kubernetes manifests: the objects of a file, and who reads each kind.

A file may hold objects of several families (a Workspace and its ConfigMap, a Deployment beside a PyTorchJob). Whatever
family gives the file its name, all of its objects are read.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from ...formats.core.keys import key_problems, load
from ..containers.services import tell_services
from ..embedded import embedded
from ..launch import Started
from ..mistakes.manifests import refused_manifest
from ..values import scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...formats.core.format import Problem, Project
    from ...source.document import Document
    from ...source.node import Node
    from ..launch import Launch

MAX_OBJECTS = 500
"""Objects of one file that are read."""

_CORE = {"": ("Pod",), "apps": ("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet"), "batch": ("Job", "CronJob")}

_KINDS: dict[str, dict[str, tuple[str, ...]]] = {
    "kubernetes": _CORE,
    "kubeflow": {
        "kubeflow.org": ("PyTorchJob", "MPIJob", "TFJob", "JAXJob", "PaddleJob", "XGBoostJob"),
        "trainer.kubeflow.org": ("TrainJob", "TrainingRuntime", "ClusterTrainingRuntime"),
    },
    "jobset": {"jobset.x-k8s.io": ("JobSet",)},
    "volcano": {"batch.volcano.sh": ("Job",)},
    "leaderworkerset": {"leaderworkerset.x-k8s.io": ("LeaderWorkerSet",)},
    "kuberay": {"ray.io": ("RayJob", "RayCluster", "RayService")},
    "kserve": {
        "serving.kserve.io": (
            "InferenceService", "LLMInferenceService", "LLMInferenceServiceConfig", "ServingRuntime",
            "ClusterServingRuntime",
        ),
    },
    "ome": {"ome.io": ("InferenceService", "ServingRuntime", "ClusterServingRuntime", "BaseModel", "ClusterBaseModel")},
    "kubeai": {"kubeai.org": ("Model",)},
    "kaito": {"kaito.sh": ("Workspace", "InferenceSet", "RAGEngine")},
    "llmaz": {
        "llmaz.io": ("OpenModel",),
        "inference.llmaz.io": ("Playground", "Service", "BackendRuntime"),
    },
    "production_stack": {"production-stack.vllm.ai": ("VLLMRuntime",)},
    "gitops": {
        "helm.toolkit.fluxcd.io": ("HelmRelease",), "argoproj.io": ("Application",), "helm.cattle.io": ("HelmChart",),
    },
    "nim": {"apps.nvidia.com": ("NIMService", "NIMPipeline")},
    "aibrix": {"orchestration.aibrix.ai": ("StormService", "RoleSet", "PodSet", "RayClusterFleet")},
}  # fmt: skip
"""Module -> API group -> kinds that it reads."""

_READERS = {(group, kind): module for module, groups in _KINDS.items() for group in groups for kind in groups[group]}

_NO_RESOURCE = frozenset({"kubernetes", "custom_pods", "gitops"})
"""Modules that read workloads of Kubernetes itself, or whatever a controller installs."""

GROUPS = {module: frozenset(groups) for module, groups in _KINDS.items()}
"""Module -> the API groups of its kinds."""


class Object(NamedTuple):
    """One object: its kind, the group of its API version, its name and its tree."""

    kind: str
    group: str
    name: str
    root: Node

    @property
    def part(self) -> str:
        """How people call it: "PyTorchJob llama"."""
        return f"{self.kind} {self.name}" if self.name else self.kind


class Manifests(NamedTuple):
    """The objects of a file."""

    file: Document
    project: Project
    objects: tuple[Object, ...]

    def named(self, kinds: tuple[str, ...], name: object) -> Object | None:
        """The object of one of the kinds with that name."""
        return next((item for item in self.objects if item.kind in kinds and item.name == name), None)

    def used_by(self, kind: str, path: str, name: str) -> bool:
        """Whether an object of a kind names another one at a path."""
        return bool(name) and any(scalar(item.root, path) == name for item in self.objects if item.kind == kind)

    def embedded(self, name: Node | None, key: str) -> Document | None:
        """The config under a key of the ConfigMap that a node names."""
        found = self.named(("ConfigMap",), name.value) if name is not None else None
        data = found.root.get("data") if found is not None else None
        return embedded(self.file, data.get(key)) if data is not None else None


def group_of(root: Node) -> tuple[str, str]:
    """The API group and the kind of an object; empty where it has none."""
    version, kind = root.get("apiVersion"), root.get("kind")
    if version is None or kind is None or not isinstance(version.value, str) or not isinstance(kind.value, str):
        return "", ""
    return version.value.rpartition("/")[0], kind.value


def objects(document: Document) -> Iterator[Object]:
    """The objects of a file, those within a `List` among them."""
    count = 0
    for root in document.roots:
        listed = root.get("items") if group_of(root) == ("", "List") else None
        for item in listed.items() if listed is not None else [root]:
            group, kind = group_of(item)
            count += 1
            if not kind or count > MAX_OBJECTS:
                continue
            name = item.find("metadata.name")
            label = str(name.value.value) if name is not None and name.value.is_scalar else ""
            yield Object(kind, group, label, item)


def field_problems(document: Document, item: Object) -> list[Problem]:
    """The fields of an object held against the definition that the API server has of it, if it is a kind with one."""
    version = str(getattr(item.root.get("apiVersion"), "value", "")).rpartition("/")[2]
    definition = f"{item.group}/{version}/{item.kind}"
    if definition not in load("kubernetes")["$defs"]:
        return []
    return key_problems(document, "kubernetes", node=item.root, definition=definition)


def module_of(name: str) -> str:
    """The path of a reader's module below this package."""
    return name if name in _NO_RESOURCE else f"resources.{name}"


def readers(item: Object) -> str:
    """The module that reads an object; empty where none does."""
    return _READERS.get((item.group, item.kind), "")


def recogniser(module: str) -> Callable[[Document], bool]:
    """Whether a document holds an object that the module reads."""

    def recognise(document: Document) -> bool:
        return any(_READERS.get((item.group, item.kind)) == module for item in objects(document))

    groups = ", ".join(f"`{group}`" for group in sorted(GROUPS[module]) if group)
    recognise.__doc__ = f"Manifests with an object of {groups or 'Kubernetes itself'}."
    return recognise


def others(item: Object) -> bool:
    """Whether an object is a custom resource that no module reads. Groups of Kubernetes itself end in `.k8s.io`, or
    have no dot; the definition of a resource is none."""
    return "." in item.group and not item.group.endswith(".k8s.io") and (item.group, item.kind) not in _READERS


def launches(document: Document, project: Project) -> Started:
    """The jobs of every object; a custom resource says why there are none before a plain workload does."""
    from ..commands.jobs import MAX_JOBS

    manifests = Manifests(document, project, tuple(objects(document)))
    found: list[Launch] = []
    bare: list[Launch] = []
    problems: list[Problem] = []
    reasons: dict[bool, str] = {}
    for item in manifests.objects:
        problems += field_problems(document, item)
        problems += refused_manifest(item, document)
        module = _READERS.get((item.group, item.kind)) or ("custom_pods" if others(item) else None)
        if module is None:
            continue
        started: Started = import_module(f".{module_of(module)}", __package__).read(item, manifests)
        started = tell_services(item, manifests.objects, started, document, project)
        found += started.launches
        bare += started.bare
        problems += started.problems
        if len(found) >= MAX_JOBS:
            break
        if started.reason:
            reasons.setdefault(module == "kubernetes", started.reason)
    reason = reasons.get(False) or reasons.get(True) or "starts no job"
    return Started(found[:MAX_JOBS], problems, "" if found else reason, bare=bare[:MAX_JOBS])
