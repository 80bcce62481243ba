"""Beaker experiments (`version: v2`, `tasks`; docs.allenai.org beaker spec of 2026)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...formats.core.coercion import as_integer
from ..kubernetes.container import Container, environment, jobs_of_container
from ..kubernetes.manifest import text
from ..kubernetes.pod import listed, mappings
from ..launch import Launch, Launcher, Resources, Started

if TYPE_CHECKING:
    from ...formats.core.format import Problem, Project
    from ...source.document import Document

NAME = "beaker"


def recognise(document: Document) -> bool:
    """`version: v2` and `tasks`, of which one names an image of Beaker or Docker."""
    version, tasks = document.root.get("version"), document.root.get("tasks")
    if version is None or tasks is None or not str(version.value).startswith("v2"):
        return False
    return any(task.is_mapping and task.get("image") is not None for task in tasks.items())


def launches(document: Document, project: Project) -> Started:
    """The jobs of every task; its replicas work together."""
    found: list[Launch] = []
    problems: list[Problem] = []
    reason = ""
    tasks = document.root.get("tasks")
    for task in tasks.items() if tasks is not None else ():
        if not task.is_mapping:
            continue
        resources = Resources()
        for name, key in (("gpus_per_node", "resources.gpuCount"), ("nodes", "replicas")):
            entry = task.find(key)
            if entry is not None:
                resources.state(name, as_integer(entry.value.value), document.path, key, entry.value.span)
        container = Container(
            text(task, "image.beaker") or text(task, "image.docker"),
            listed(task.get("command")) or None,
            listed(task.get("arguments")),
            environment([
                (str(name.value), document, value)
                for item in mappings(task.get("envVars"))
                for name, value in ((item.get("name"), item.get("value")),)
                if item.is_mapping and name is not None and value is not None
            ]),
        )  # fmt: skip
        part = f"task {text(task, 'name')}" if text(task, "name") else "task"
        started = jobs_of_container(container, document, project, resources, part)
        found += started.launches
        problems += started.problems
        reason = reason or started.reason
    return Started(found, problems, "" if found else reason or "has no task")


LAUNCHER = Launcher(NAME, "Beaker experiment", "Beaker v2", recognise, launches, "`resources.gpuCount` x `replicas`")
