"""How many GPUs a job runs on, when a file or the project says so, and what is assumed when nobody does."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...job.origin import Origin

if TYPE_CHECKING:
    from ...source.node import Entry
    from .format import JobBuilder, Project

SHARDED_GPUS = 8
"""GPUs assumed for a job that DeepSpeed or FSDP runs when nothing states a count: one node of eight."""


class Stated(NamedTuple):
    """A count of GPUs that the file itself states, and the key that states it.

    `group`: the program places these ranks on so many GPUs of those that it finds, and leaves the others to other
    roles.
    """

    gpus: int
    entry: Entry
    key: str
    note: str = ""
    group: bool = False


def set_hardware(
    builder: JobBuilder, project: Project, stated: Stated | None, *, sharded: bool, unknown: bool = False
) -> None:
    """Fill `hardware` of the job.

    The GPU and the counts that the project was given win, but for a group of ranks, which needs that many of the GPUs
    that were given; then the count the file states; then, where DeepSpeed or
    FSDP is configured or (`unknown`) may be in a file that is not here, `SHARDED_GPUS`, which leaves the count open,
    else one GPU, both `assumed`.
    """
    given = Origin("command line", "given to gpulint")
    for name, value in (
        ("gpu", project.gpu.name if project.gpu else None),
        ("gpus", project.gpus),
        ("nodes", project.nodes),
    ):
        if value is not None:
            builder.job.assign(f"hardware.{name}", value)
            builder.job.origins[f"hardware.{name}"] = given
    if project.gpus is not None:
        if stated is not None and stated.group and stated.gpus > 0:
            builder.job.hardware.granted_gpus = project.gpus
            builder.job.origins["hardware.granted_gpus"] = given
            builder.from_entry("hardware.gpus", stated.gpus, stated.entry, stated.key, stated.note)
        return
    nodes = max(1, project.nodes or 1)
    if stated is not None and stated.gpus > 0:
        builder.from_entry("hardware.gpus", stated.gpus, stated.entry, stated.key, stated.note)
    elif unknown:
        note = "the accelerate config that would say it is not here; one node of 8 GPUs"
        builder.assumed("hardware.gpus", SHARDED_GPUS * nodes, note)
        builder.job.unstated.append("hardware.gpus")
    elif sharded:
        each = f"{nodes} nodes of {SHARDED_GPUS} GPUs each" if nodes > 1 else f"one node of {SHARDED_GPUS} GPUs"
        note = f"nothing states a count; DeepSpeed or FSDP suggests {each}"
        builder.assumed("hardware.gpus", SHARDED_GPUS * nodes, note)
        builder.job.unstated.append("hardware.gpus")
    else:
        builder.assumed("hardware.gpus", 1, "nothing states a count; one GPU")
