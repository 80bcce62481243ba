"""AIBrix: StormService, RoleSet, PodSet, RayClusterFleet (AIBrix 0.7, `orchestration.aibrix.ai/v1alpha1`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....formats.core.coercion import as_integer
from ...launch import Launcher, Started
from ..manifests import launches, recogniser
from ..pod import jobs_of_pod, mappings
from .kuberay import jobs_of_cluster
from .kuberay import members as members_of_cluster

if TYPE_CHECKING:
    from ....source.node import Node
    from ..manifests import Manifests, Object

NAME = "aibrix"
_ROLES = {"StormService": "spec.template.spec.roles", "RoleSet": "spec.roles"}


def read(item: Object, manifests: Manifests) -> Started:
    """The jobs of every role (prefill, decode ...), of a set of pods, or of a fleet's Ray cluster."""
    if item.kind == "RayClusterFleet":
        cluster = item.root.find("spec.template.spec")
        found = members_of_cluster(cluster.value) if cluster is not None else []
        return jobs_of_cluster(found, item.part, manifests)
    if item.kind == "PodSet":
        size = item.root.find("spec.podGroupSize")
        pod = item.root.find("spec.template.spec")
        return _pods(pod.value if pod else None, size.value if size else None, item.part, manifests)
    section = item.root.find(_ROLES[item.kind])
    launched, problems, reason = [], [], ""
    for role in mappings(section.value if section is not None else None):
        pod, name = role.find("template.spec"), role.get("name")
        part = f"{item.part}, {name.value}" if name is not None else item.part
        started = _pods(pod.value if pod else None, role.get("podGroupSize"), part, manifests)
        launched += started.launches
        problems += started.problems
        reason = reason or started.reason
    return Started(launched, problems, "" if launched else reason or "has no role")


def _pods(spec: Node | None, size: Node | None, part: str, manifests: Manifests) -> Started:
    """The jobs of a pod; `podGroupSize` of them work together."""
    if spec is None or not spec.is_mapping:
        return Started([], [], "has no pod")
    count = as_integer(size.value) if size is not None else None
    return jobs_of_pod(spec, manifests.file, manifests.project, part, count)


LAUNCHER = Launcher(NAME, "AIBrix resource", "AIBrix 0.7", recogniser(NAME), launches, "GPUs of a pod x `podGroupSize`")
