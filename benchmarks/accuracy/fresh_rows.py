"""Figures of our own search (`fresh*.json`, a file a round): sources that no table of `../shared/data` holds, each
estimated before it was looked at.

A row holds its source, a short quote, and either a Job or the command that ran with the flags that decide its memory.
`blind` is what the estimator said of it on the day it was written down, before anything was mended, with a `reason`
where it said nothing. Its numbers and its verdict never change, also where `corrected` says what of the source the Job
had wrong then; where it is the row's figure that was corrected, `figure` is written beside them: what they answered.
`seen` marks a row that a defect was mended after, or that a bound was taken from: it is no longer held out. The scores
of the answers given blind stand beside today's (`GROUP / FIGURE (blind)`).

files     what the files hold that the command names, by path, cut to what decides memory
part      of a file that starts several jobs the one that is meant; there is no command then
release   of the engine that the command starts
counted   false where the source does not tell what was counted
commit    the one in which the figure was written down, where the command is that of then and not that of `source`
written   the day of that commit
versions  the newest releases of that day that the repository's pins of then admit
rounded   half a unit of the last digit printed, in bytes
other     the figure in the other unit, GB or GiB, where the source may mean either
"""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from gpulint.job.job import Job
from gpulint.launchers.reading import UnrecognisedError, open_jobs, recognise_file
from gpulint.settings.settings import Settings
from gpulint.source.document import SourceError

from .case import Case, Excluded, Inexpressible, Row
from .scores import summary

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .scores import Score

PATHS = sorted(Path(__file__).parent.glob("fresh*.json"))


def rows() -> list[Row]:
    """The rows of all rounds."""
    return [row for path in PATHS for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]


@lru_cache(1)
def all_cases() -> tuple[tuple[Case, ...], tuple[Excluded, ...]]:
    """The rows of all rounds as `cases` has them, read once: nobody changes one."""
    found, excluded = cases(rows())
    return (*found,), (*excluded,)


def cases(given: Iterable[Row]) -> tuple[list[Case], list[Excluded]]:
    """Every row as a Case, or the reason why not."""
    found: list[Case] = []
    excluded: list[Excluded] = []
    for row in given:
        try:
            found.append(case(row))
        except Inexpressible as error:
            excluded.append(Excluded(row["id"], row["group"], str(error)))
    return found, excluded


def case(row: Row) -> Case:
    """One figure or outcome. Raises Inexpressible."""
    job = Job.validate(row["job"]) if "job" in row else read_command(row)
    job.hardware.gpu, job.hardware.gpus = row["gpu"], row["gpus"]
    if "release" in row:
        assert job.inference is not None
        job.inference.version = row["release"]
    confidence = "medium" if row.get("unknown") else "high"
    return Case(
        row["id"],
        row["group"],
        job,
        row["figure"],
        row["measured"],
        row.get("outcome"),
        not row.get("unknown"),
        confidence,
        row.get("unknown", ""),
        row.get("counted", True),
        row.get("rounded", 0.0),
        row.get("other"),
    )


def packages(row: Row) -> dict[str, str]:
    """The releases that a row's command runs with, so that what it leaves out is filled in as they do."""
    stated: dict[str, str] = row.get("versions") or {}
    if "release" not in row:
        return stated
    engine = next((name for name in ("sglang", "text-generation") if name in row["command"]), "vllm")
    return {engine.replace("text-generation", "tgi"): row["release"], **stated}


class Blind(NamedTuple):
    """What was answered before the row was looked at."""

    error: float | None
    covered: bool | None


def blind(given: Iterable[Row] | None = None) -> list[Score]:
    """The scores of the first answers, by group and figure."""
    groups: dict[str, list[Blind]] = {}
    for row in rows() if given is None else given:
        if row["measured"] is None or "reason" in row["blind"]:
            continue
        first, measured = row["blind"], row["measured"]
        covered = first["low"] <= measured <= first["high"] if "low" in first else None
        name = f"{row['group']} / {first.get('figure', row['figure'])} (blind)"
        groups.setdefault(name, []).append(Blind(first["value"] / measured - 1, covered))
    return [summary(name, answers) for name, answers in groups.items()]


def read_command(row: Row) -> Job:
    """The Job that a row's command line starts, beside its files and with its packages, or that `part` of its one file.

    Raises Inexpressible.
    """
    files = row.get("files", {})
    first, gpus = ("command.sh", row["gpus"]) if "command" in row else (next(iter(files)), None)
    with TemporaryDirectory() as root:
        for name, text in {"command.sh": row.get("command", "") + "\n", **files}.items():
            path = Path(root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        settings = Settings(gpus=gpus, versions=packages(row), root=root)
        try:
            found = open_jobs(recognise_file(os.path.join(root, first)), settings)
        except (SourceError, UnrecognisedError) as error:
            raise Inexpressible(f"not read: {type(error).__name__} {error}") from None
    jobs = [opened.reading.job for opened in found.opened if opened.part == row.get("part", opened.part)]
    if not jobs:
        raise Inexpressible(found.reason or "starts no job")
    return jobs[0]
