"""Kubernetes workloads: Pod, Deployment, StatefulSet, ReplicaSet, DaemonSet, Job, CronJob (API reference 1.34)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..formats.coercion import as_integer
from .launch import Launch, Launcher, Started
from .pod import jobs_of_pod

if TYPE_CHECKING:
    from ..formats.format import Problem, Project
    from ..source.document import Document
    from ..source.node import Node

NAME = "kubernetes"

_SPECS = {
    "Pod": "spec",
    "Deployment": "spec.template.spec",
    "StatefulSet": "spec.template.spec",
    "ReplicaSet": "spec.template.spec",
    "DaemonSet": "spec.template.spec",
    "Job": "spec.template.spec",
    "CronJob": "spec.jobTemplate.spec.template.spec",
}
"""Kind -> where its pod spec is."""

_VERSIONS = ("v1", "apps/v1", "batch/v1", "batch/v1beta1")


def recognise(document: Document) -> bool:
    """A manifest with one of the workload kinds of Kubernetes itself."""
    return any(_kind(root) for root in document.roots)


def launches(document: Document, project: Project) -> Started:
    """The jobs of every workload; the pods of a Job with an index work together."""
    found: list[Launch] = []
    problems: list[Problem] = []
    reason = ""
    for root in document.roots:
        kind = _kind(root)
        spec = root.find(_SPECS[kind]) if kind else None
        if spec is None or not spec.value.is_mapping:
            continue
        started = jobs_of_pod(spec.value, document, project, _part(root, kind), _pods(root, kind))
        found += started.launches
        problems += started.problems
        reason = reason or started.reason
    return Started(found, problems, "" if found else reason or "holds no pod")


def _kind(root: Node) -> str:
    kind, version = root.get("kind"), root.get("apiVersion")
    if kind is None or version is None or version.value not in _VERSIONS or not isinstance(kind.value, str):
        return ""
    return kind.value if kind.value in _SPECS else ""


def _pods(root: Node, kind: str) -> int | None:
    """Pods that work on one job: those of an indexed Job; the replicas of a server each serve on their own."""
    mode = root.find("spec.completionMode")
    if kind != "Job" or mode is None or mode.value.value != "Indexed":
        return None
    entry = root.find("spec.parallelism") or root.find("spec.completions")
    return as_integer(entry.value.value) if entry is not None else None


def _part(root: Node, kind: str) -> str:
    name = root.find("metadata.name")
    return f"{kind} {name.value.value}" if name is not None and name.value.is_scalar else kind


LAUNCHER = Launcher(
    NAME, "Kubernetes workload", "Kubernetes 1.34", recognise, launches, "limits of `nvidia.com/gpu`, node labels"
)
