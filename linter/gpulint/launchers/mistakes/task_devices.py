"""Tasks of Slurm that see one GPU each, as device 0, and a program that takes the device of its local rank.

`--gpus-per-task` implies `--gpu-bind=per_task` (srun manual); torch's set_device(1) is then an invalid ordinal.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...source.document import SourceError
from ..cloud import slurm
from .starts import number, option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...formats.core.format import Problem
    from ...source.node import Span
    from .starts import Start

_BINDS_ONE = re.compile(r"(?:single|per_task):1|closest:1")
_BY_RANK = frozenset({"mace_run_train", "mace-run-train"})
"""Commands whose source takes the device by SLURM_LOCALID: MACE `tools/slurm_distributed.py`, `cli/run_train.py`."""

_TAKES = re.compile(r"set_device\([^)]*(?:local_?rank|LOCAL_?RANK)|SLURM_LOCALID")


def one_card_a_task(start: Start) -> Iterator[Problem]:
    """The problem of the option that binds one GPU to each of several tasks of a node."""
    bound = _bound(start)
    if bound is None or start.tasks is None or (start.tasks.per_node or 1) < 2 or start.program.launchers:
        return
    how = _by_local_rank(start)
    if how:
        key, span, path = bound
        values = {"value": str(start.tasks.per_node), "reason": how}
        yield start.problem("one-card-a-task", key, span, **values)._replace(path=path)


def _bound(start: Start) -> tuple[str, Span, str] | None:
    for name, options in start.program.options:
        given = slurm.given(options) if name == "srun" else {}
        if "gpu-bind" in given:
            text, span, path = given["gpu-bind"]
            return ("gpu-bind", span, path) if _BINDS_ONE.fullmatch(text) else None
    told = start.resources.told.get("slurm.gpus_per_task")
    if told is None or told[0] != 1 or told[1].span is None:
        return None
    return "gpus-per-task", told[1].span, told[1].file or start.file.path


def _by_local_rank(start: Start) -> str:
    """Why the program is known to take the device of its local rank; "" where it is not."""
    word = start.environment.get("LOCAL_RANK")
    if word is not None and "SLURM_LOCALID" in word.text:
        return "LOCAL_RANK is SLURM_LOCALID"
    local = option(start.options, "local_rank", "local-rank")
    if local is not None and "SLURM_LOCALID" in str(local.value.value):
        return f"{local.key.value} is SLURM_LOCALID"
    if start.program.head in _BY_RANK:
        return f"{start.program.head} takes the device of its local rank"
    devices = number(option(start.options, "trainer.devices", "devices"))
    if devices is not None and devices > 1:
        return f"Lightning looks for {devices} devices in each"
    try:
        source = (
            start.project.open(start.program.name.text, start.file.path) if start.program.head[-3:] == ".py" else None
        )
    except SourceError:
        source = None
    return f"{start.program.head} takes the device of its local rank" if source and _TAKES.search(source.text) else ""
