"""How many times a command is started, and where: the tasks of `srun`, the processes of `mpirun`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...formats.core.coercion import as_integer
from ...job.origin import Origin
from ..cloud import slurm

if TYPE_CHECKING:
    from ..launch import Resources
    from .wrappers import Unwrapped

_SUBMITS = ("salloc", "sbatch", "srun")
"""Commands of Slurm that take options for hardware, the outermost first: what is stated later wins."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """How often a command runs at the same time; None where nobody knows.

    count      over all nodes
    per_node   on each node
    nodes      of the step
    origin     the statement that decides
    """

    count: int | None
    per_node: int | None
    nodes: int | None
    origin: Origin


def ask(resources: Resources, program: Unwrapped) -> None:
    """Lay what the options of Slurm's commands around a program ask for over what the job has."""
    for wanted in _SUBMITS:
        for name, options in program.options:
            found = slurm.given(options) if name == wanted else {}
            if not found:
                continue
            if name == "srun" and "nodes" in found and resources.nodes is not None:
                del found["nodes"]  # a step on some nodes may be the head of what runs on all of them
            slurm.fill(resources, found)


def tell_tasks(resources: Resources, program: Unwrapped) -> Tasks | None:
    """Note `tasks.count`, `tasks.per_node` and `tasks.nodes` for rules, and `tasks.differ` where the command has
    arguments that differ from task to task; None where nobody knows how many tasks there are.

    `srun` starts `--ntasks` tasks over the nodes, or `--ntasks-per-node` on each, else one a node (srun manual).
    """
    tasks = _of_srun(resources, program) or _of_mpirun(program)
    if tasks is None:
        return None
    for name, number in (("count", tasks.count), ("per_node", tasks.per_node), ("nodes", tasks.nodes)):
        if number is not None:
            resources.told[f"tasks.{name}"] = (number, tasks.origin)
    if any(name in word.text for word in program.words for name in ("SLURM_PROCID", "SLURM_LOCALID")):
        resources.told["tasks.differ"] = (True, tasks.origin)
    return tasks


def _of_srun(resources: Resources, program: Unwrapped) -> Tasks | None:
    own = next((slurm.given(options) for name, options in program.options if name == "srun"), None)
    if own is None or any(name in own and as_integer(own[name].text) is None for name in _DECIDE):
        return None
    nodes = as_integer(own["nodes"].text) if "nodes" in own else resources.nodes
    each, total = resources.told.get("slurm.ntasks_per_node"), resources.told.get("slurm.ntasks")
    if total is not None and ("nodes" not in own or "ntasks" in own):
        count, origin = total
        # --ntasks-per-node is then only the most of a node (srun manual)
        most = min(count, each[0]) if each else None
        return Tasks(count, -(-count // nodes) if nodes else most, nodes, origin)
    if each is not None and "ntasks" not in own:
        count, origin = each
        return Tasks(count * nodes if nodes else None, count, nodes, origin)
    at = resources.origins.get("nodes")
    return Tasks(nodes, 1, nodes, at) if nodes and at is not None and "ntasks" not in own else None


_DECIDE = ("ntasks", "ntasks-per-node", "nodes")


def _of_mpirun(program: Unwrapped) -> Tasks | None:
    for name, options in program.options:
        entry = next((found for key in ("np", "n", "c") if (found := options.root.entry(key))), None)
        if name == "mpirun" and entry is not None:
            count, span = as_integer(entry.value.value), entry.value.span
            at = Origin("file", "", options.path, str(entry.key.value), span, span)
            return Tasks(count, None, None, at) if count and count > 0 else None
    return None


def ranks_of(resources: Resources, tasks: Tasks | None) -> None:
    """The processes of a command that is started once a rank: with one task a node the program starts its own."""
    if tasks is None or tasks.count is None or tasks.count > MAX_TASKS or resources.processes is not None:
        return
    if (tasks.per_node or tasks.count) > 1 or resources.gpus_per_node == 1:
        resources.processes = tasks.count
        resources.origins["processes"] = tasks.origin._replace(note="one process per task")


MAX_TASKS = 100_000
