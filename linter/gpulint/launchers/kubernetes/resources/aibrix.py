"""AIBrix: StormService, RoleSet, PodSet, RayClusterFleet (AIBrix 0.7, `orchestration.aibrix.ai/v1alpha1`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....formats.core.coercion import as_integer
from ...launch import Launcher, Started, combined
from ...values import mapping_at, mappings, value_at
from ..manifests import launches, recogniser
from ..pod import jobs_of_pod
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
        cluster = value_at(item.root, "spec.template.spec")
        found = members_of_cluster(cluster) if cluster is not None else []
        return jobs_of_cluster(found, item.part, manifests)
    if item.kind == "PodSet":
        return _pods(value_at(item.root, "spec"), item.part, manifests)
    parts = (
        _pods(role, f"{item.part}, {name.value}" if (name := role.get("name")) is not None else item.part, manifests)
        for role in mappings(value_at(item.root, _ROLES[item.kind]))
    )
    return combined(parts, "has no role")


def _pods(holder: Node | None, part: str, manifests: Manifests) -> Started:
    """The jobs of a pod; `podGroupSize` of them work together."""
    spec, size = mapping_at(holder, "template.spec"), value_at(holder, "podGroupSize")
    if spec is None:
        return Started([], [], "has no pod")
    count = as_integer(size.value) if size is not None else None
    return jobs_of_pod(spec, manifests.file, manifests.project, part, count)


LAUNCHER = Launcher(NAME, "AIBrix resource", "AIBrix 0.7", recogniser(NAME), launches, "GPUs of a pod x `podGroupSize`")
