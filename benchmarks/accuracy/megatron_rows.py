"""Peaks that Megatron-LM's functional tests hold their runs to (`megatron.json`).

A row holds the options of a test that decide memory. What torch allocated is that of the last rank, so of the last
pipeline stage, and is compared with the estimate of that stage. Nothing was mended after rows of one case alone: what
was found are dropout masks, unfused attention, replicas of the distributed optimizer, and micro batches in flight
behind interleaved stages. `blind` is what was said before.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpulint.formats.core.format import NoJobError, Project
from gpulint.formats.megatron import format as megatron
from gpulint.source.read import parse

from .case import Case, Excluded, Row
from .scores import summary

if TYPE_CHECKING:
    from gpulint.job.job import Job

    from .scores import Score

PATH = Path(__file__).with_name("megatron.json")
FIGURE = "last stage"


def rows() -> list[Row]:
    """The rows of the file."""
    found: list[Row] = json.loads(PATH.read_text(encoding="utf-8"))["rows"]
    return found


def cases() -> tuple[list[Case], list[Excluded]]:
    """Every row as a Case, or the reason why not."""
    found: list[Case] = []
    excluded: list[Excluded] = []
    for row in rows():
        try:
            found.append(case(row))
        except NoJobError as error:
            excluded.append(Excluded(row["id"], row["group"], error.reason))
    return found, excluded


def case(row: Row) -> Case:
    """One test. Raises NoJobError."""
    return Case(row["id"], group(row), job(row), FIGURE, row["measured"])


def group(row: Row) -> str:
    """Experts without a gate are scored apart: Mixtral's, with one and two thirds of the width, stand for them."""
    args = row["args"]
    return f"{row['group']}, experts without a gate" if "num-experts" in args and "swiglu" not in args else row["group"]


def job(row: Row) -> Job:
    """The Job of a row's options on its GPUs. Raises NoJobError."""
    document = parse(json.dumps({"MODEL_ARGS": row["args"]}), "model_config.json", "json")
    read = megatron.read(document, Project("", None, row["gpus"], None, lambda _name, _path: None)).job
    read.hardware.gpu, read.hardware.gpus = row["gpu"], row["gpus"]
    return read


class Blind(NamedTuple):
    """What was answered before anything was mended."""

    error: float | None
    covered: bool | None = None


def blind() -> list[Score]:
    """The scores of the first answers, by group."""
    groups: dict[str, list[Blind]] = {}
    for row in rows():
        groups.setdefault(group(row), []).append(Blind(row["blind"] / row["measured"] - 1))
    return [summary(f"{name} / {FIGURE} (blind)", answers) for name, answers in groups.items()]
