"""dstack tasks, services and development environments (dstack 0.19, `docs/reference/dstack.yml`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...formats.core.coercion import as_integer
from ..commands.images import versions
from ..commands.jobs import jobs_of
from ..kubernetes.container import Container, jobs_of_container, listed_environment
from ..kubernetes.manifest import text
from ..launch import Launch, Launcher, Resources, Started
from ..quantities import size
from ..shell.script import of_scalar

if TYPE_CHECKING:
    from ...formats.core.format import Problem, Project
    from ...source.document import Document
    from ...source.node import Node

NAME = "dstack"
_KINDS = frozenset({"task", "service", "dev-environment", "fleet", "volume", "gateway"})
_KEYS = frozenset({"commands", "image", "python", "ide", "port", "ports", "resources", "env", "entrypoint", "backends"})
_COUNT = re.compile(r"\d+(\.\.\d*)?")


def recognise(document: Document) -> bool:
    """`type` is one of dstack's and other keys are, too."""
    root = document.root
    return text(root, "type") in _KINDS and bool(set(root.keys()) & _KEYS)


def launches(document: Document, project: Project) -> Started:
    """The jobs of the commands, on the GPUs of `resources.gpu`."""
    root = document.root
    if text(root, "type") not in ("task", "service"):
        return Started([], [], f"a {text(root, 'type')}: starts no job")
    resources = Resources()
    _read_resources(document, root, resources)
    variables = listed_environment(document, root.get("env"))
    image = text(root, "image")
    commands = root.get("commands")
    if commands is None or not commands.items():
        container = Container(image, None, (), variables)
        return jobs_of_container(container, document, project, resources, text(root, "type"))
    found: list[Launch] = []
    problems: list[Problem] = []
    known = versions(image)
    for item in commands.items():
        if not isinstance(item.value, str):
            continue
        script = of_scalar(document, item)
        started = jobs_of(script, document, project, resources, variables, text(root, "type"), known)
        found += started.launches
        problems += started.problems
    return Started(found, problems, "" if found else "starts no program that gpulint knows")


def _read_resources(document: Document, root: Node, resources: Resources) -> None:
    nodes = root.entry("nodes")
    if nodes is not None:
        resources.state("nodes", as_integer(nodes.value.value), document.path, "nodes", nodes.value.span)
    shared = root.find("resources.shm_size")
    if shared is not None:
        number = size(shared.value.value)
        resources.state("shared_memory", number, document.path, "resources.shm_size", shared.value.span)
    gpu = root.find("resources.gpu")
    if gpu is None:
        return
    where = (document.path, "resources.gpu", gpu.value.span)
    if gpu.value.is_mapping:
        name, memory = text(gpu.value, "name"), text(gpu.value, "memory")
        count = gpu.value.get("count")
        number = as_integer(str(count.value).partition("..")[0]) if count is not None else 1
        resources.state("gpus_per_node", number or 1, *where)
        resources.state("gpu", _kind(name, memory), *where)
        return
    name, memory, number = "", "", 1
    for part in str(gpu.value.value).split(":"):
        if _COUNT.fullmatch(part):
            number = int(part.partition("..")[0]) or 1
        elif re.match(r"\d", part):
            memory = part
        elif part not in ("nvidia", "amd"):
            name = part
    resources.state("gpus_per_node", number, *where)
    resources.state("gpu", _kind(name, memory), *where)


def _kind(name: str, memory: str) -> str | None:
    """The name of a card, with its memory where that is one size; None where only the memory is asked for."""
    first = name.partition(",")[0]
    if not first:
        return None
    return f"{first}-{memory}" if memory and ".." not in memory else first


LAUNCHER = Launcher(NAME, "dstack configuration", "dstack 0.19", recognise, launches, "`resources.gpu` x `nodes`")
