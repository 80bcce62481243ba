"""Volcano: a Job of several tasks that are scheduled as a gang (Volcano 1.15, `batch.volcano.sh/v1alpha1`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....formats.core.coercion import as_integer
from ...launch import Launcher, Started
from ..group import Member, jobs_of_group
from ..manifests import launches, recogniser
from ..pod import mappings

if TYPE_CHECKING:
    from ..manifests import Manifests, Object

NAME = "volcano"


def read(item: Object, manifests: Manifests) -> Started:
    """The jobs of the first task that starts one, on the GPUs of all."""
    tasks = item.root.find("spec.tasks")
    found = []
    for task in mappings(tasks.value if tasks is not None else None):
        spec, count, name = task.find("template.spec"), task.entry("replicas"), task.get("name")
        if spec is None or not spec.value.is_mapping:
            continue
        label = str(name.value) if name is not None and name.is_scalar else ""
        found.append(Member(label, spec.value, as_integer(count.value.value) if count is not None else 1))
    return jobs_of_group(found, manifests.file, manifests.project, item.part)


LAUNCHER = Launcher(NAME, "Volcano job", "Volcano 1.15", recogniser(NAME), launches, "GPUs of a pod x `replicas`")
