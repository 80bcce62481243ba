"""Kubernetes workloads: Pod, Deployment, StatefulSet, ReplicaSet, DaemonSet, Job, CronJob (API reference 1.34)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...formats.core.coercion import as_integer
from ..launch import Launcher, Started
from .manifests import launches, recogniser
from .pod import jobs_of_pod

if TYPE_CHECKING:
    from ...source.node import Node
    from .manifests import Manifests, Object

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


def read(item: Object, manifests: Manifests) -> Started:
    """The jobs of a workload; the pods of a Job with an index work together."""
    spec = item.root.find(_SPECS[item.kind])
    if spec is None or not spec.value.is_mapping:
        return Started([], [], "has no pod")
    pods = _pods(item.root, item.kind)
    return jobs_of_pod(spec.value, manifests.file, manifests.project, item.part, pods)


def _pods(root: Node, kind: str) -> int | None:
    """Pods that work on one job: those of an indexed Job; the replicas of a server each serve on their own."""
    mode = root.find("spec.completionMode")
    if kind != "Job" or mode is None or mode.value.value != "Indexed":
        return None
    entry = root.find("spec.parallelism") or root.find("spec.completions")
    return as_integer(entry.value.value) if entry is not None else None


LAUNCHER = Launcher(
    NAME,
    "Kubernetes workload",
    "Kubernetes 1.37",
    recogniser(NAME),
    launches,
    "limits of `nvidia.com/gpu`, node labels",
)
