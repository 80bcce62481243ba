"""JobSet: several Jobs that work together (JobSet 0.12, `jobset.x-k8s.io/v1alpha2`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...launch import Launcher, Started
from ...values import mappings, scalar, value_at
from ..group import jobs_of_group, pods_of
from ..manifests import launches, recogniser

if TYPE_CHECKING:
    from ....source.node import Node
    from ..group import Member
    from ..manifests import Manifests, Object

NAME = "jobset"


def read(item: Object, manifests: Manifests) -> Started:
    """The jobs of the set: of the first of its Jobs that starts one, on the GPUs of all where it has none."""
    spec = item.root.get("spec")
    found = members(spec) if spec is not None else []
    return jobs_of_group(found, manifests.file, manifests.project, item.part)


def members(spec: Node) -> list[Member]:
    """The pods of every replicated Job: replicas x parallelism (each 1 where nothing is said)."""
    return [
        each
        for job in mappings(spec.get("replicatedJobs"))
        for each in pods_of(
            scalar(job, "name"),
            job.find("template.spec.template.spec"),
            job.get("replicas"),
            value_at(job, "template.spec.parallelism"),
        )
    ]


LAUNCHER = Launcher(
    NAME, "JobSet", "JobSet 0.12", recogniser(NAME), launches, "GPUs of a pod x `replicas` x `parallelism`"
)
