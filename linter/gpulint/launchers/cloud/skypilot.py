"""SkyPilot tasks and services (SkyPilot 0.14.1: `sky/utils/schemas.py`, docs `reference/yaml-spec`)."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from ...formats.core.placeholders import is_blank
from ...job.origin import Origin
from ...repository.images import versions as image_versions
from ..commands.jobs import jobs_of, pinned
from ..kubernetes.container import listed_environment
from ..launch import Launch, Launcher, Resources, Started
from ..machines import machine_of, tell_machine
from ..quantities import size
from ..shell.script import of_scalar
from ..values import mapping_at, mappings

if TYPE_CHECKING:
    from ...formats.core.format import Problem, Project
    from ...source.document import Document
    from ...source.node import Node
    from ..shell.shell import Word

NAME = "skypilot"

_KEYS = frozenset(
    {"resources", "run", "setup", "num_nodes", "envs", "file_mounts", "workdir", "service", "secrets", "volumes",
     "pool"}
)  # fmt: skip
_OTHERS = frozenset({"apiVersion", "kind", "type", "model_name", "model", "base_model", "services", "trainer", "nodes"})
"""Keys that other tools have beside those."""
_ACCELERATOR = re.compile(r"([A-Za-z0-9_.-]+?)(?::(\d+(?:\.\d+)?))?(?::[a-z]+)?")
_RANKS = {"SKYPILOT_NODE_RANK": "0"}


def recognise(document: Document) -> bool:
    """A task: `resources` or `run` among SkyPilot's keys, and nothing that other tools say with them."""
    for root in document.roots:
        keys = set(root.keys())
        resources = root.get("resources")
        known = keys & _KEYS
        if keys & _OTHERS or len(known) * 2 < len(keys):
            continue
        run = root.get("run")
        script = run is not None and run.is_scalar and isinstance(run.value, str)
        cloud = resources is not None and resources.is_mapping and bool(set(resources.keys()) & _RESOURCES)
        if (script and len(known) >= 2) or cloud:
            return True
    return False


_RESOURCES = frozenset(
    {"accelerators", "gpus", "cloud", "infra", "cpus", "memory", "instance_type", "use_spot", "disk_size", "ports",
     "any_of", "ordered", "image_id", "region", "disk_tier", "autostop", "job_recovery"}
)  # fmt: skip


def launches(document: Document, project: Project) -> Started:
    """The jobs of the `run` script of each task, on the accelerators it asks for (of several, the first)."""
    found: list[Launch] = []
    bare: list[Launch] = []
    problems: list[Problem] = []
    reason = ""
    for root in document.roots:
        run = root.get("run")
        if run is None or not isinstance(run.value, str):
            reason = reason or "has no `run` script"
            continue
        resources = Resources()
        _read_resources(root, document, resources)
        resources.told["each_node"] = (True, Origin("derived", "`run` is run on every node"))
        variables = _variables(root, resources, document)
        setup = root.get("setup")
        versions: dict[str, str] = {}
        if setup is not None and isinstance(setup.value, str):
            versions = pinned(of_scalar(document, setup), document)
        image = root.find("resources.image_id")
        if image is not None and isinstance(image.value.value, str):
            versions = {**image_versions(image.value.value.removeprefix("docker:")), **versions}
        name = root.get("name")
        part = f"task {name.value}" if name is not None and isinstance(name.value, str) else "run"
        there = _from_workdir(project, root.get("workdir"))
        started = jobs_of(of_scalar(document, run), document, there, resources, variables, part, versions)
        found += started.launches
        bare += started.bare
        problems += started.problems
        reason = started.reason or reason
    return Started(found, problems, "" if found else reason or "has no `run` script", bare=bare)


def _from_workdir(project: Project, workdir: Node | None) -> Project:
    """A project whose files are first looked for in the folder that the task copies and starts in."""
    folder = workdir.value if workdir is not None else None
    if not isinstance(folder, str) or folder in ("", "."):
        return project
    return project._replace(
        open=lambda name, beside: project.open(posixpath.join(folder, name), beside) or project.open(name, beside)
    )


def _read_resources(root: Node, document: Document, resources: Resources) -> None:
    resources.read("nodes", root.entry("num_nodes"), document.path)
    section = mapping_at(root, "resources")
    if section is None:
        return
    chosen = [section, *(item for key in ("any_of", "ordered") for item in mappings(section.get(key)))]
    for part in chosen:
        _accelerators(part, document, resources)
        if resources.host_memory is None:
            resources.read("host_memory", part.entry("memory"), document.path, "resources.memory", _gigabytes)
        disk = part.entry("disk_size")
        number = _gigabytes(disk.value.value) if disk is not None else None
        if disk is not None and number:
            resources.tell("disk", number, document.path, "resources.disk_size", disk.value.span)
        machine = part.entry("instance_type")
        if machine is not None:
            _instance(machine.value, document, resources, alone=len(chosen) == 1)


def _gigabytes(value: object) -> int | None:
    """Bytes of `64` or `64GB`; of `64+`, at least so many, None."""
    return None if str(value).strip().endswith("+") else size(value, unit="G")


_NO_GPUS = ("tpu", "inferentia", "trainium", "gaudi")


MOST_GPUS = 1 << 31
"""A count beyond it is no count of GPUs, and a float beyond all of them no number."""


def _accelerators(section: Node, document: Document, resources: Resources) -> None:
    """`A100-80GB:8`, `{A100-80GB: 8}`, or a list or mapping of choices, of which the first counts."""
    entry = section.entry("accelerators") or section.entry("gpus")
    if entry is None or resources.gpus_per_node is not None:
        return
    node = entry.value
    if node.is_mapping and node.entries():
        first = node.entries()[0]
        count = "" if first.value.value is None else f":{first.value.value or 1}"
        text, span = f"{first.key.value}{count}", first.key.span
    elif node.is_sequence and node.items():
        text, span = str(node.items()[0].value), node.items()[0].span
    else:
        text, span = str(node.value), node.span
    match = _ACCELERATOR.fullmatch(text.strip())
    if match is None or is_blank(text) or text.lower().startswith(_NO_GPUS):
        return
    choices = (node.is_mapping or node.is_sequence) and len(node.value) > 1
    note = "the first of several choices" if choices else ""
    if choices:
        resources.tell("choices", len(node.value), document.path, "resources.accelerators", span)
    resources.state("gpu", match[1], document.path, "resources.accelerators", span, note)
    number = min(float(match[2] or 1), MOST_GPUS)
    resources.state("gpus_per_node", max(1, int(number)), document.path, "resources.accelerators", span, note)


def _instance(node: Node, document: Document, resources: Resources, *, alone: bool) -> None:
    machine = machine_of(node.value)
    if machine is None:
        return
    if alone:
        tell_machine(machine, resources, document.path, "resources.instance_type", node.span)
    if resources.gpu is None:
        note = f"GPUs of {node.value}"
        resources.state("gpu", machine.gpu.name, document.path, "resources.instance_type", node.span, note)
        resources.state("gpus_per_node", machine.gpus, document.path, "resources.instance_type", node.span, note)


def _variables(root: Node, resources: Resources, document: Document) -> dict[str, str | Word]:
    """`envs` with stated values, and what SkyPilot sets in every task."""
    variables: dict[str, str | Word] = dict(_RANKS)
    variables["SKYPILOT_NUM_NODES"] = str(resources.nodes or 1)
    if resources.gpus_per_node:
        variables["SKYPILOT_NUM_GPUS_PER_NODE"] = str(resources.gpus_per_node)
    stated = listed_environment(document, root.get("envs"))
    variables.update({name: word for name, word in stated.items() if not is_blank(word.text)})
    return variables


LAUNCHER = Launcher(
    NAME, "SkyPilot task", "SkyPilot 0.14.1", recognise, launches, "`resources.accelerators` x `num_nodes`"
)
