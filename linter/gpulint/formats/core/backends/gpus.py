"""GPUs as tools that place models on nodes state them: those of a node, and the nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..bindings.kinds import POSITIVE
from ..bindings.rows import Key
from ..world_size import Stated, set_hardware

if TYPE_CHECKING:
    from ....job.job import Job
    from ..bindings.reader import Reader
    from ..bindings.rows import Row


def gpus_of_nodes(each: str, nodes: str) -> tuple[Row, ...]:
    """`hardware`: the GPUs of a node times the nodes, one where the file says none."""

    def step(reader: Reader) -> None:
        given, count = reader.given(POSITIVE, each), reader.value(POSITIVE, nodes, default=1)
        note = f"GPUs x {count} nodes"
        stated = Stated(given.value * count, given.entry, given.key, note) if given else None
        set_hardware(reader, reader.project, stated, sharded=False)

    return step, Key("hardware.nodes", nodes, POSITIVE, default=1)


def model_ranks(job: Job) -> int:
    """The replicas of the model: the GPUs over tensor x pipeline x context parallel ranks."""
    plan = job.parallelism
    return max(1, (job.hardware.gpus or 1) // (plan.tensor * plan.pipeline * plan.context))
