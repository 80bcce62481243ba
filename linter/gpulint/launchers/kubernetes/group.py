"""Pods of several templates that work on one job: a leader and its workers, a launcher and its workers."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ...formats.core.coercion import as_integer
from ...job.origin import Origin
from ..launch import Resources, Started
from .pod import gpu_container, jobs_of_pod
from .pod_settings import tell_shared

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...formats.core.format import Problem, Project
    from ...source.document import Document
    from ...source.node import Entry, Node
    from ..launch import Launch
    from ..shell.shell import Word


class Member(NamedTuple):
    """A pod spec and how many pods of it there are; None where the file does not say."""

    role: str
    spec: Node
    pods: int | None


def pods_of(role: str, pod: Entry | None, *counts: Node | None) -> list[Member]:
    """A pod spec of which there are as many as the product of its counts, each 1 where it is missing; none without."""
    if pod is None or not pod.value.is_mapping:
        return []
    numbers = [as_integer(node.value) if node is not None else 1 for node in counts]
    stated = [number for number in numbers if number is not None]
    return [Member(role, pod.value, prod(stated) if len(stated) == len(numbers) else None)]


def resources_of(members: Sequence[Member], file: Document) -> Resources:
    """What the pods with GPUs run on, and how many of those there are."""
    found, nodes, known = Resources(), 0, True
    for member in members:
        container, own = gpu_container(member.spec, file)
        if own.gpus_per_node is None or container is None:
            continue
        if found.gpus_per_node is None:
            tell_shared(member.spec, container, file, own)
            found = own
        known = known and member.pods is not None
        nodes += member.pods or 0
    if found.gpus_per_node is not None and known:
        found.nodes = nodes or None
    return found


def jobs_of_group(
    members: Sequence[Member],
    file: Document,
    project: Project,
    part: str,
    variables: Mapping[str, Word] | None = None,
) -> Started:
    """The jobs of the first member that starts any: a leader starts the job, its workers only join.

    A member without GPUs of its own starts the job on those of the others.
    """
    whole = resources_of(members, file)
    whole.told["group"] = (len(members), Origin("derived", "pods of several templates"))
    problems: list[Problem] = []
    bare: list[Launch] = []
    reason = ""
    for member in members:
        _, own = gpu_container(member.spec, file)
        shared = whole if own.gpus_per_node is None else Resources(nodes=whole.nodes, told=dict(whole.told))
        label = f"{part}, {member.role}" if member.role else part
        started = jobs_of_pod(
            member.spec, file, project, label, None, shared, variables, mounts_shared_memory=shared is whole
        )
        problems += started.problems
        bare += [launch for launch in started.bare if not bare]
        if started.launches:
            return Started(started.launches, problems)
        reason = reason or started.reason
    return Started([], problems, reason or "has no pod", bare=bare)
