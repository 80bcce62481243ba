"""`#SBATCH` lines and the options of Slurm's commands: GPUs, nodes, tasks and memory (sbatch manual, Slurm 25.05)."""

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
_SHORT = {"N": "nodes", "n": "ntasks", "G": "gpus", "c": "cpus-per-task", "p": "partition", "C": "constraint"}
_COUNT = re.compile(r"(\d+)(?:-\d+)?")


class _Gpus(NamedTuple):
    kind: str | None
    number: int


class Stated(NamedTuple):
    """The value of an option as it is written, and where."""

    text: str
    span: Span
    path: str


def stated(document: Document) -> dict[str, Stated]:
    """The options of the `#SBATCH` lines by their long names."""
    places = places_of(document.text)
    found: dict[str, Stated] = {}
    for line in _LINE.finditer(document.text):
        for option in _OPTION.finditer(document.text, line.start(1), line.end(1)):
            name = _SHORT.get(option[1].lstrip("-"), option[1].lstrip("-"))
            found[name] = Stated(option[2].strip("\"'"), places.span(option.start(), option.end()), document.path)
    return found


def given(options: Document) -> dict[str, Stated]:
    """The options that a command line gives to `sbatch`, `salloc` or `srun`, by their long names."""
    found: dict[str, Stated] = {}
    for entry in options.root.entries():
        name = str(entry.key.value).replace("_", "-")
        if entry.value.is_scalar:
            found[_SHORT.get(name, name)] = Stated(str(entry.value.value), entry.value.span, options.path)
    return found


def fill(resources: Resources, found: dict[str, Stated]) -> None:
    """Set what the options say, over what is set already; what only the run knows (`--nodes=$N`) is then unknown.

    `--gres=gpu:h100:8`, `--gpus-per-node=h100:8`, `--gpus=16`, `--gpus-per-task` with `--ntasks-per-node`, `--nodes`
    (the least of a range), `--mem`, and the kind from `--constraint` or `--partition` where no other option says it.
    """
    if "nodes" in found:
        resources.nodes = None
        resources.origins.pop("nodes", None)
        resources.state("nodes", _number(found, "nodes"), found["nodes"].path, "nodes", found["nodes"].span)
    before, resources.gpus_per_node = resources.gpus_per_node, None
    kind, resources.gpu = resources.gpu, None
    for name in _GPUS:
        if name in found:
            _ask(resources, found, name, resources.nodes or 1)
    if resources.gpus_per_node is None and not any(name in found for name in _GPUS):
        resources.gpus_per_node = before
    for name in ("constraint", "partition"):
        if resources.gpu is None and kind is None and name in found:
            _kind(resources, *found[name], name)
    resources.gpu = resources.gpu or kind
    if "mem" in found:
        text, span, path = found["mem"]
        resources.state("host_memory", size(text, unit="M") or None, path, "mem", span)  # 0 is all that the node has
    else:
        _memory_of_parts(resources, found)
    for name in ("ntasks-per-node", "ntasks", "cpus-per-task", "gpus-per-task"):
        number = _number(found, name)
        if number is not None:
            resources.tell(f"slurm.{name.replace('-', '_')}", number, found[name].path, name, found[name].span)
        elif name in found:
            resources.told.pop(f"slurm.{name.replace('-', '_')}", None)


def _memory_of_parts(resources: Resources, found: dict[str, Stated]) -> None:
    """`--mem-per-cpu` times the CPUs of the tasks of a node, `--mem-per-gpu` times its GPUs; a whole node has more."""
    name = next((name for name in ("mem-per-cpu", "mem-per-gpu") if name in found), "")
    each = size(found[name].text, unit="M") if name else None
    if each is None or "exclusive" in found or "cpus-per-gpu" in found:
        return
    tasks = _number(found, "ntasks-per-node") or -(-(_number(found, "ntasks") or 1) // (resources.nodes or 1))
    parts = tasks * (_number(found, "cpus-per-task") or 1) if name == "mem-per-cpu" else resources.gpus_per_node
    if parts:
        note = f"{found[name].text} x {parts}"
        resources.state("host_memory", each * parts, found[name].path, name, found[name].span, note)


_GPUS = ("gpus-per-node", "gres", "gpus-per-task", "gpus")
"""The options that ask for GPUs, the first that is there counts."""


def read(document: Document, resources: Resources, over: dict[str, Stated] | None = None) -> dict[str, str]:
    """Fill `resources` from the `#SBATCH` lines and from `over`, options of the command that submits the script, which
    win; the variables that Slurm sets for what they state.
    """
    found = stated(document)
    if over and not over.keys().isdisjoint(_GPUS):
        found = {name: option for name, option in found.items() if name not in _GPUS}
    found |= over or {}
    if not found:
        return {}
    fill(resources, found)
    return _variables(resources, found)


def _ask(resources: Resources, found: dict[str, Stated], name: str, nodes: int) -> None:
    """What one of the options for GPUs says, where none before it has."""
    text, span, path = found[name]
    asked = _gpus(text, name)
    if asked is None:
        return
    if asked.kind and resources.gpu is None:
        _gpu(resources, asked.kind, path, name, span)
    number = asked.number
    if name == "gpus-per-task":
        number *= _number(found, "ntasks-per-node") or -(-(_number(found, "ntasks") or 1) // nodes)
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


def _number(found: dict[str, Stated], name: str) -> int | None:
    match = _COUNT.match(found[name].text) if name in found else None
    return int(match[1]) if match else None


def _variables(resources: Resources, found: dict[str, Stated]) -> dict[str, str]:
    """What Slurm sets in the job's environment (sbatch manual, OUTPUT ENVIRONMENT VARIABLES)."""
    nodes = resources.nodes or 1
    variables = {"SLURM_NNODES": str(nodes), "SLURM_JOB_NUM_NODES": str(nodes)}
    if resources.gpus_per_node:
        variables["SLURM_GPUS_ON_NODE"] = str(resources.gpus_per_node)
        if "gpus-per-node" in found:
            variables["SLURM_GPUS_PER_NODE"] = found["gpus-per-node"].text
    for name, variable in (("ntasks", "SLURM_NTASKS"), ("ntasks-per-node", "SLURM_NTASKS_PER_NODE"),
                           ("cpus-per-task", "SLURM_CPUS_PER_TASK")):  # fmt: skip
        if name in found:
            variables[variable] = found[name].text
    return variables
