"""The memory of a file's jobs and the verdict, one line each, for the top of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..hardware.catalogue import find
from ..report.printable import printable
from ..report.verdict import told
from ..units import bytes_text
from .hover import fitting

if TYPE_CHECKING:
    from .reading import Plan, Read

MAX_LENSES = 8
"""Jobs of one file that get a line."""


def lenses(read: Read) -> list[str]:
    """`11.1 GiB of 79.1 GiB on H100 80GB: fits`, for each job that names a model."""
    several = len(read.jobs) > 1
    lines = [(plan.opened.part, _line(plan)) for plan in read.jobs]
    return [f"{printable(part)}: {line}" if several and part else line for part, line in lines if line][:MAX_LENSES]


def _line(plan: Plan) -> str:
    estimate = plan.estimate
    if estimate is None:
        return printable(plan.reason) if plan.opened.reading.job.model is not None else ""
    needed = bytes_text(estimate.needed)
    if estimate.capacity is None:
        smallest = next(iter(fitting(estimate)), None)
        enough = f"fits on {smallest} and larger" if smallest else "no GPU is large enough"
        return f"{needed} per GPU; {enough}; {told(estimate, plan.result)}"
    title, usable = find(estimate.capacity.gpu).title, bytes_text(estimate.capacity.usable)
    return f"{needed} of {usable} on {title}: {told(estimate, plan.result)}"
