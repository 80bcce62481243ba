"""Beaker experiments (`version: v2`, `tasks`; docs.allenai.org beaker spec of 2026)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..kubernetes.container import Container, jobs_of_container, variables_of
from ..launch import Launcher, Resources, Started, combined
from ..values import listed, mappings, text

if TYPE_CHECKING:
    from ...formats.core.format import Project
    from ...source.document import Document
    from ...source.node import Node

NAME = "beaker"


def recognise(document: Document) -> bool:
    """`version: v2` and `tasks`, of which one names an image of Beaker or Docker."""
    version, tasks = document.root.get("version"), document.root.get("tasks")
    if version is None or tasks is None or not str(version.value).startswith("v2"):
        return False
    return any(task.is_mapping and task.get("image") is not None for task in tasks.items())


def launches(document: Document, project: Project) -> Started:
    """The jobs of every task; its replicas work together."""
    return combined((_task(task, document, project) for task in mappings(document.root.get("tasks"))), "has no task")


def _task(task: Node, document: Document, project: Project) -> Started:
    resources = Resources()
    for name, key in (("gpus_per_node", "resources.gpuCount"), ("nodes", "replicas")):
        resources.read(name, task.find(key), document.path, key)
    container = Container(
        text(task, "image.beaker") or text(task, "image.docker"),
        listed(task.get("command")) or None,
        listed(task.get("arguments")),
        variables_of(task.get("envVars"), document),
    )
    part = f"task {text(task, 'name')}" if text(task, "name") else "task"
    return jobs_of_container(container, document, project, resources, part)


LAUNCHER = Launcher(NAME, "Beaker experiment", "Beaker v2", recognise, launches, "`resources.gpuCount` x `replicas`")
