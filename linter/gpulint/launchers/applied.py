"""What a launch adds to the reading of the config that it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..job.origin import Origin
from .containers.mounts import name_models
from .containers.ports import port_problems
from .granted import set_granted

if TYPE_CHECKING:
    from ..formats.core.format import Problem, Reading
    from .launch import Launch


def apply(launch: Launch, reading: Reading, root: str) -> None:
    """What the launch adds to the reading: files, problems, models behind mounts, and the memory of the host."""
    reading.references.update(launch.files)
    reading.problems[:] = [
        *launch.problems, *(item for item in reading.problems if item.key.replace("_", "-") not in launch.implied)
    ]  # fmt: skip
    if launch.declared:
        reading.problems[:] = [item for item in reading.problems if not _declares(launch, item)]
    if launch.own_build:
        reading.problems[:] = [item for item in reading.problems if item.kind not in _OF_A_VERSION or _misspelt(item)]
    resources, job = launch.resources, reading.job
    reading.launch = resources.told
    if launch.unread:
        job.unread = job.unread or f"`{launch.unread}`, which the command names, is not here"
    for path, decided in launch.decided.items():
        job.assign(path, decided.value)
        job.origins[path] = decided.origin
    for name, value in (
        ("host_memory", resources.host_memory),
        ("shared_memory", resources.shared_memory),
        ("asked_gpus", resources.gpus),
    ):
        if value is not None:
            setattr(job.hardware, name, value)
            origin = resources.origins.get(name if name != "asked_gpus" else "gpus_per_node")
            job.origins[f"hardware.{name}"] = origin or Origin("derived", f"hardware of {launch.part}")
    set_granted(launch, reading)
    name_models(resources.mounts, reading, root)
    reading.problems += port_problems(launch, reading)
    for path, stated in job.origins.items():
        said = launch.implied.get((stated.key or "").replace("_", "-")) if stated.kind == "file" else None
        if said is not None and stated.file == launch.config.path:
            note = "; ".join(part for part in (said.note, stated.note) if part)
            job.origins[path] = stated._replace(kind=said.kind, note=note)


_OF_A_VERSION = frozenset({"unknown-key", "deprecated-key"})
"""Problems that hold for the program as it is published."""


def _declares(launch: Launch, problem: Problem) -> bool:
    """Whether the script declares an option that its format does not know."""
    return problem.kind == "unknown-key" and problem.key in launch.declared and problem not in launch.problems


def _misspelt(problem: Problem) -> bool:
    """Whether an unknown option is surely a known one misspelt, as a fork's own options are unlikely to be."""
    return problem.values.get("slip") == "yes"
