"""`#SBATCH` lines: the GPUs, nodes and memory that a job asks of Slurm (sbatch manual, Slurm 25.05)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ...source.places import places_of
from ..quantities import size

if TYPE_CHECKING:
    from ...source.document import Document
    from ...source.node import Span
    from ..launch import Resources

_LINE = re.compile(r"^#SBATCH[ \t]+(.*?)[ \t]*(?:[ \t]#.*)?\r?$", re.MULTILINE)
_OPTION = re.compile(r"(--[a-z-]+|-[A-Za-z])(?:[= \t]*)(\"[^\"]*\"|'[^']*'|[^\s]*)")
_SHORT = {"-N": "nodes", "-n": "ntasks", "-G": "gpus", "-c": "cpus-per-task", "-p": "partition", "-C": "constraint"}
_COUNT = re.compile(r"(\d+)(?:-\d+)?")


class _Gpus(NamedTuple):
    kind: str | None
    number: int


def read(document: Document, resources: Resources) -> dict[str, str]:
    """Fill `resources` from the `#SBATCH` lines; the variables that Slurm sets for what they state.

    `--gres=gpu:h100:8`, `--gpus-per-node=h100:8`, `--gpus=16`, `--gpus-per-task` with `--ntasks-per-node`, `--nodes`
    (the least of a range), `--mem`, and the kind from `--constraint` or `--partition` where no other option says it.
    """
    places = places_of(document.text)
    found: dict[str, tuple[str, Span]] = {}
    for line in _LINE.finditer(document.text):
        for option in _OPTION.finditer(document.text, line.start(1), line.end(1)):
            name = _SHORT.get(option[1], option[1].lstrip("-"))
            found[name] = (option[2].strip("\"'"), places.span(option.start(), option.end()))
    if not found:
        return {}
    path = document.path
    nodes = _number(found, "nodes")
    if nodes:
        resources.state("nodes", nodes, path, "nodes", found["nodes"][1])
    for name in ("gpus-per-node", "gres", "gpus-per-task", "gpus"):
        if name in found:
            _ask(resources, found, name, path, nodes or 1)
    for name in ("constraint", "partition"):
        if resources.gpu is None and name in found:
            _kind(resources, *found[name], path, name)
    if "mem" in found:
        resources.state("host_memory", size(found["mem"][0], unit="M"), path, "mem", found["mem"][1])
    for name in ("ntasks-per-node", "ntasks", "cpus-per-task"):
        number = _number(found, name)
        if number is not None:
            resources.tell(f"slurm.{name.replace('-', '_')}", number, path, name, found[name][1])
    return _variables(resources, found)


def _ask(resources: Resources, found: dict[str, tuple[str, Span]], name: str, path: str, nodes: int) -> None:
    """What one of the options for GPUs says, where none before it has."""
    text, span = found[name]
    asked = _gpus(text, name)
    if asked is None:
        return
    if asked.kind and resources.gpu is None:
        _gpu(resources, asked.kind, path, name, span)
    number = asked.number
    if name == "gpus-per-task":
        number *= _number(found, "ntasks-per-node") or _number(found, "ntasks") or 1
    elif name == "gpus":
        number = -(-number // nodes)
    if resources.gpus_per_node is None and number:
        resources.state("gpus_per_node", number, path, name, span)


def _kind(resources: Resources, text: str, span: Span, path: str, name: str) -> None:
    """A partition or constraint that names a GPU of the catalogue."""
    from ...hardware.catalogue import UnknownGpu, find

    for word in re.split(r"[\s|&,()\[\]]+", text):
        try:
            find(word)
        except UnknownGpu:
            continue
        _gpu(resources, word, path, name, span, f"from the {name}")
        return


def _gpu(resources: Resources, kind: str, path: str, name: str, span: Span, note: str = "") -> None:
    """The GPU of a name that a cluster gave it; of several sizes the largest, as nothing says which it has."""
    from ...hardware.catalogue import UnknownGpu, largest

    try:
        gpu, choice = largest(kind)
    except UnknownGpu:
        resources.state("gpu", kind, path, name, span, note)
        return
    resources.state("gpu", gpu.name if choice else kind, path, name, span, choice or note)


def _gpus(text: str, name: str) -> _Gpus | None:
    """`gpu:h100:8`, `gpu:8`, `h100:8`, `8`."""
    for item in text.split(","):
        parts = item.split("(")[0].split(":")
        if name == "gres":
            if parts[0] not in ("gpu", "gres/gpu"):
                continue
            parts = parts[1:] or ["1"]
        match = _COUNT.fullmatch(parts[-1])
        if match:
            return _Gpus(":".join(parts[:-1]) or None, int(match[1]))
        if parts[-1]:
            return _Gpus(parts[-1], 1)
    return None


def _number(found: dict[str, tuple[str, Span]], name: str) -> int | None:
    match = _COUNT.match(found[name][0]) if name in found else None
    return int(match[1]) if match else None


def _variables(resources: Resources, found: dict[str, tuple[str, Span]]) -> dict[str, str]:
    """What Slurm sets in the job's environment (sbatch manual, OUTPUT ENVIRONMENT VARIABLES)."""
    nodes = resources.nodes or 1
    variables = {"SLURM_NNODES": str(nodes), "SLURM_JOB_NUM_NODES": str(nodes)}
    if resources.gpus_per_node:
        variables["SLURM_GPUS_ON_NODE"] = str(resources.gpus_per_node)
        if "gpus-per-node" in found:
            variables["SLURM_GPUS_PER_NODE"] = found["gpus-per-node"][0]
    for name, variable in (("ntasks", "SLURM_NTASKS"), ("ntasks-per-node", "SLURM_NTASKS_PER_NODE"),
                           ("cpus-per-task", "SLURM_CPUS_PER_TASK")):  # fmt: skip
        if name in found:
            variables[variable] = found[name][0]
    return variables
