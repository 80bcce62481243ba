"""The verdict of a job in words, one way for all that people read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .printable import printable

if TYPE_CHECKING:
    from ..estimator.estimate import Estimate
    from ..finding import JobResult

NOT_CHECKED = "not checked"

_WORDS = {
    "fits": "fits",
    "tight": "tight: may or may not fit",
    "exceeds": "does not fit",
    "unknown": "no verdict",
    "refuses": "fails to start",
    "not-checked": NOT_CHECKED,
}
_MAY_START = "tight: may or may not start"
"""Of an engine that looks before it takes memory; what it needs may be less than the card has."""


def word(estimate: Estimate, result: JobResult | None = None) -> str:
    """A few words for the verdict; `result` is what came of the job, None for a change of it that is only tried."""
    if result is not None and result.verdict == "not-checked":
        return NOT_CHECKED
    if estimate.stops is not None:
        return _WORDS["refuses"] if estimate.verdict == "exceeds" else _MAY_START
    return _WORDS[estimate.verdict]


def told(estimate: Estimate, result: JobResult | None = None) -> str:
    """The same, with the reason where the memory was not checked and where the job does not start."""
    if result is not None and result.unchecked:
        return printable(result.unchecked)
    reason = f": {printable(estimate.stops)}" if estimate.stops is not None else ""
    return word(estimate, result) + reason
