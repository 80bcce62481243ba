"""JobSet: several Jobs that work together (JobSet 0.12, `jobset.x-k8s.io/v1alpha2`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....formats.core.coercion import as_integer
from ...launch import Launcher, Started
from ..group import Member, jobs_of_group
from ..manifests import launches, recogniser
from ..pod import mappings

if TYPE_CHECKING:
    from ....source.node import Node
    from ..manifests import Manifests, Object

NAME = "jobset"


def read(item: Object, manifests: Manifests) -> Started:
    """The jobs of the set: of the first of its Jobs that starts one, on the GPUs of all where it has none."""
    spec = item.root.get("spec")
    found = members(spec) if spec is not None else []
    return jobs_of_group(found, manifests.file, manifests.project, item.part)


def members(spec: Node) -> list[Member]:
    """The pods of every replicated Job: replicas x parallelism (each 1 where nothing is said)."""
    found = []
    for job in mappings(spec.get("replicatedJobs")):
        pod = job.find("template.spec.template.spec")
        if pod is None or not pod.value.is_mapping:
            continue
        count: int | None = 1
        for entry in (job.entry("replicas"), job.find("template.spec.parallelism")):
            number = as_integer(entry.value.value) if entry is not None else 1
            count = count * number if count is not None and number is not None else None
        name = job.get("name")
        found.append(Member(str(name.value) if name is not None and name.is_scalar else "", pod.value, count))
    return found


LAUNCHER = Launcher(
    NAME, "JobSet", "JobSet 0.12", recogniser(NAME), launches, "GPUs of a pod x `replicas` x `parallelism`"
)
