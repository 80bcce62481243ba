"""Nodes that a launcher waits for and that never come, and nodes that work alone.

`missing-nodes`: more nodes are waited for than run the command: another number than the cluster gives, or a batch
script that starts it without srun, on the first node only. `lone-nodes`: each node runs a job of its own, or
leaves most of its GPUs idle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...formats.core.coercion import as_integer
from .starts import number, option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...formats.core.format import Problem
    from ...source.node import Entry
    from .starts import Start

_SPREAD = frozenset({"mpirun", "ray job submit"})
"""Wrappers that start a command on other nodes themselves."""


def missing_nodes(start: Start) -> Iterator[Problem]:
    """The problems of the number of nodes that a launcher is told of."""
    entry = _waited_for(start)
    given = start.resources.nodes
    if entry is None and given is not None:
        yield from _by_default(start)
    if entry is None or given is None or not _SPREAD.isdisjoint(start.wrappers):
        return
    asked = as_integer(entry.value.value)
    if asked is None or asked < 1:
        return
    key, span = str(entry.key.value), entry.value.span
    running = _running(start)
    if running is None:
        return
    if asked > running:
        why = f"the job has {given}"
        if running != given:
            why = f"only the first of {given} runs it: a batch script's commands run there, unless srun starts them"
        yield start.problem("missing-nodes", key, span, value=str(asked), reason=why)
    elif asked == 1 and start.everywhere and running > 1:
        yield start.problem(
            "lone-nodes",
            key,
            span,
            value=str(running),
            reason=f"each of {running} nodes starts a job of its own, as {key} is 1: all write to the same output",
        )


def _by_default(start: Start) -> Iterator[Problem]:
    """torchrun's `--nnodes` is 1 where neither it nor `PET_NNODES` says otherwise."""
    running = _running(start) if start.everywhere else None
    span = start.at(start.program.name)
    if running is None or running < 2 or span is None or "PET_NNODES" in start.environment:
        return
    for _, root in start.launcher("torchrun"):
        if not root.open:
            why = f"each of {running} nodes starts a job of its own, as nnodes is 1 by default; all write to one output"
            yield start.problem("lone-nodes", "nnodes", span, value=str(running), reason=why)


def lone_machines(start: Start) -> Iterator[Problem]:
    """`num_processes` of accelerate is the total: GPUs that no machine uses where it is that of one."""
    if not start.everywhere:
        return
    for _, root in start.launcher("accelerate"):
        processes, machines = option(root, "num_processes"), number(option(root, "num_machines"))
        each = start.resources.gpus_per_node
        total = number(processes)
        if processes is None or not machines or not each or not total or machines < 2:
            continue
        if total % machines == 0 and total == each < each * machines:
            why = f"num_processes is the total of all machines: {total // machines} of {each} GPUs of each are used"
            yield start.problem("lone-nodes", "num_processes", processes.value.span, value=str(total), reason=why)


def _waited_for(start: Start) -> Entry | None:
    for name, root in start.launcher("torchrun", "accelerate"):
        entry = option(root, "nnodes", "num_machines")
        return None if name == "accelerate" and entry is not None and number(entry) == 1 else entry
    return None


def _running(start: Start) -> int | None:
    """How many nodes run the command at the same time; None where nobody knows."""
    if "srun" in start.wrappers:
        tasks = start.tasks
        return tasks.nodes if tasks is not None and (tasks.per_node or 1) == 1 and tasks.count == tasks.nodes else None
    if "each_node" in start.resources.told or "group" in start.resources.told:
        return start.resources.nodes
    if "batch" in start.resources.told and "sbatch" not in start.wrappers and (start.resources.nodes or 1) > 1:
        return 1
    return None
