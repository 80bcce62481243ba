"""Rows that `benchmarks.gpu` wrote: each holds the Job that ran, and three counters of the same run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpulint.job.job import Job

from .case import Case, Row, hardware

FOLDER = Path(__file__).parents[1] / "gpu" / "rows"
COUNTERS = {"allocated": "allocated", "reserved": "reserved", "nvidia_smi": "process"}
"""Counter of a row -> figure."""


def cases(folder: Path = FOLDER) -> list[Case]:
    """All figures of the files in a folder; a run out of memory has only its outcome. None where there is no file."""
    found: list[Case] = []
    for path in sorted(folder.glob("*.json")):
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
            found += of_row(row)
    return found


def of_row(row: Row) -> list[Case]:
    """The figures of one run; the outcome is told once."""
    plan: dict[str, Any] = {key: value for key, value in row["job"].items() if key != "gpulint"}
    job = hardware(Job.validate(plan), row)
    if row["outcome"] == "oom":
        return [Case(row["id"], row["source_group"], job, "process", None, "oom")]
    found, outcome = [], "fits" if job.hardware.gpu else None
    for counter, figure in COUNTERS.items():
        measured = row["extra_measurements"][counter]
        if measured is not None:
            found.append(Case(row["id"], row["source_group"], job, figure, float(measured), outcome))
            outcome = None
    return found
