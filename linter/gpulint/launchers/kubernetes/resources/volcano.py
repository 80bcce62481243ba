"""Volcano: a Job of several tasks that are scheduled as a gang (Volcano 1.15, `batch.volcano.sh/v1alpha1`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...launch import Launcher, Started
from ...values import mappings, scalar, value_at
from ..group import jobs_of_group, pods_of
from ..manifests import launches, recogniser

if TYPE_CHECKING:
    from ..manifests import Manifests, Object

NAME = "volcano"


def read(item: Object, manifests: Manifests) -> Started:
    """The jobs of the first task that starts one, on the GPUs of all."""
    found = [
        each
        for task in mappings(value_at(item.root, "spec.tasks"))
        for each in pods_of(scalar(task, "name"), task.find("template.spec"), task.get("replicas"))
    ]
    return jobs_of_group(found, manifests.file, manifests.project, item.part)


LAUNCHER = Launcher(NAME, "Volcano job", "Volcano 1.15", recogniser(NAME), launches, "GPUs of a pod x `replicas`")
