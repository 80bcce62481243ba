"""The jobs behind a report, with their estimates and what other settings would need: what the HTML page shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..words import word
from .whatif import Grid, grid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..estimator.estimate import Estimate
    from ..finding import JobResult, Report
    from ..job.job import Job
    from ..launchers.reading import Opened
    from ..settings.layers import Layers
    from ..settings.settings import Settings

MAX_GRIDS = 3
"""Jobs of one page whose alternatives are worked out; each takes some hundred estimates."""


class Field(NamedTuple):
    """One Job field as it was understood, and where it comes from."""

    path: str
    value: str
    origin: str


class Card(NamedTuple):
    """One job of a report; without an estimate `reason` says why there is none, with one `result` what came of it."""

    path: str
    part: str
    format: str
    kind: str
    fields: tuple[Field, ...]
    estimate: Estimate | None
    reason: str
    grid: Grid | None
    result: JobResult | None = None


def cards(report: Report, settings: Settings | Layers) -> list[Card]:
    """A card for each job of the checked files, read again."""
    from ..launchers.reading import open_jobs, recognise_file
    from ..source.document import SourceError

    made: list[Card] = []
    for file in report.files:
        if file.status != "checked":
            continue
        try:
            jobs = open_jobs(recognise_file(file.path), settings.of(file.path))
        except SourceError:  # changed since it was checked
            continue
        for opened in jobs.started:
            wanted = sum(card.grid is not None for card in made) < MAX_GRIDS
            made.append(_card(file.path, opened, wanted=wanted))
    return made


def _card(path: str, opened: Opened, *, wanted: bool) -> Card:
    from ..estimator.estimate import NotEstimable
    from .estimated import estimated

    job = opened.reading.job
    head = (path, opened.part, opened.reading.format, job.kind, tuple(_fields(job)))
    try:
        found = estimated(opened)
    except NotEstimable as error:
        return Card(*head, None, str(error), None)
    return Card(*head, found.estimate, "", grid(job, found.model, found.gpu) if wanted else None, found.result)


def _fields(job: Job) -> Iterator[Field]:
    """What the files, the launcher or the command line decided, then what defaults did."""
    told = [(path, origin) for path, origin in job.origins.items() if origin.kind != "default"]
    rest = [(path, origin) for path, origin in job.origins.items() if origin.kind == "default"]
    for path, origin in (*sorted(told), *sorted(rest)):
        value = job.get(path)
        if value is None or path == "versions" or (path == "objective" and job.kind == "inference"):
            continue
        yield Field(
            path, "inline config.json" if path == "model" and isinstance(value, dict) else word(value), str(origin)
        )
