"""One file as an editor needs it: its jobs with their estimates, and which schema tells the keys of which mapping."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..estimator.estimate import Estimate
    from ..finding import JobResult
    from ..formats.core.keys import Held
    from ..launchers.reading import Opened
    from ..settings.layers import Layers
    from ..settings.settings import Settings


class Plan(NamedTuple):
    """A job, its estimate and what comes of it; `reason` says why there is none."""

    opened: Opened
    estimate: Estimate | None
    reason: str = ""
    result: JobResult | None = None


class Read(NamedTuple):
    """What a file holds: the jobs, and every mapping that was held against a schema, inner ones later."""

    kind: str = ""
    jobs: tuple[Plan, ...] = ()
    held: tuple[Held, ...] = ()


def read_file(path: str, layers: Settings | Layers) -> Read:
    """The jobs of a file; nothing where it cannot be read."""
    from ..formats.core.keys import watched
    from ..launchers.reading import open_jobs, recognise_file

    with watched() as held:
        try:
            found = open_jobs(recognise_file(path), layers.of(path))
            return Read(found.kind, tuple(map(_planned, found.started)), tuple(held))
        except Exception:  # unreadable, no config, or a defect; the check of the file says which
            return Read("", (), tuple(held))


def _planned(opened: Opened) -> Plan:
    from ..estimator.estimate import NotEstimable
    from ..run.estimated import estimated

    try:
        found = estimated(opened)
        return Plan(opened, found.estimate, "", found.result)
    except NotEstimable as error:
        return Plan(opened, None, str(error))
