"""dstack tasks, services and development environments (dstack 0.19, `docs/reference/dstack.yml`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...formats.core.coercion import as_integer
from ...hardware.catalogue import UnknownGpu, find
from ...job.origin import Origin
from ...repository.images import versions
from ..commands.jobs import jobs_of
from ..commands.skip_reasons import NOTHING
from ..kubernetes.container import Container, jobs_of_container, listed_environment
from ..launch import Launcher, Resources, Started, combined
from ..quantities import size
from ..shell.script import of_scalar
from ..values import listed, scalar, text, words

if TYPE_CHECKING:
    from ...formats.core.format import Project
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
    resources.told["each_node"] = (True, Origin("derived", "the commands are run on every node"))
    variables = listed_environment(document, root.get("env"))
    image = text(root, "image")
    commands = root.get("commands")
    if commands is None or not commands.items():
        container = Container(image, None, (), variables)
        return jobs_of_container(container, document, project, resources, text(root, "type"))
    scripts = [of_scalar(document, item) for item in commands.items() if isinstance(item.value, str)]
    shared = (document, project, resources, variables, text(root, "type"), versions(image))
    started = combined((jobs_of(script, *shared) for script in scripts), NOTHING)
    return started if started.launches else started._replace(reason=NOTHING)


def _read_resources(document: Document, root: Node, resources: Resources) -> None:
    resources.read("nodes", root.entry("nodes"), document.path)
    resources.read("shared_memory", root.find("resources.shm_size"), document.path, "resources.shm_size", size)
    gpu = root.find("resources.gpu")
    if gpu is None:
        return
    where = (document.path, "resources.gpu", gpu.value.span)
    if gpu.value.is_mapping:
        names, memory = words(gpu.value.get("name")), _least(gpu.value, "memory")
        asked = _least(gpu.value, "count")
    else:
        names, memory, asked = [], "", ""
        for part in (part for word in listed(gpu.value) for part in str(word.value).split(":")):
            if _COUNT.fullmatch(part):
                asked = part
            elif re.match(r"\d", part):
                memory = part
            elif part not in ("nvidia", "amd"):
                names += [name.strip() for name in part.split(",")]
    resources.state("gpus_per_node", as_integer(asked.partition("..")[0]) or 1, *where)
    kind = _kind(names, memory)
    resources.state("gpu", kind, *where, note=f"the largest of {', '.join(names)}" if len(names) > 1 else "")


def _least(node: Node, key: str) -> str:
    """A count or a size, `2`, `1..4` or `{min: 1, max: 4}`; the least of a range that is a mapping."""
    return scalar(node, key) or scalar(node, f"{key}.min")


def _kind(names: list[str], memory: str) -> str | None:
    """The name of a card, with its memory where that is one size; None where only the memory is asked for.

    Of several that may do the one of most memory, as nobody knows which it will be.
    """
    known: dict[str, int] = {}
    for name in filter(None, names):
        kind = f"{name}-{memory}" if memory and ".." not in memory else name
        try:
            known[kind] = find(kind).total
        except UnknownGpu:
            continue
    first = next(iter(names), "")
    if len(names) > 1 and known:
        return max(known, key=lambda kind: known[kind])
    return next(iter(known), f"{first}-{memory}" if first and memory and ".." not in memory else first) or None


LAUNCHER = Launcher(NAME, "dstack configuration", "dstack 0.19", recognise, launches, "`resources.gpu` x `nodes`")
