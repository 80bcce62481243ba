"""Facts that nothing settles, and whether a rule holds whatever they are.

Rules are evaluated on the job that the file and the defaults make, with rows of the full length. Where it rests on a
fact that the file, its launcher and the run leave open, the finding stands only if it holds for all that the fact may
be; else it is a step less severe and says which fact to state. Of a rule about memory the estimate's interval knows, of
another one the rule itself is asked again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ..settings.severity import SEVERITIES
from ..units import bytes_text
from .expression import fires
from .rule import CONFIDENCES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..job.job import Job
    from ..settings.severity import Severity
    from .evaluate import Fired
    from .facts.facts import Facts

MAX_STATES = 12
"""States of the job, besides the one that the defaults make, in which the rules that fired are asked again."""


class Judged(NamedTuple):
    """How severe and how reliable a finding is over all that open facts may be, and what it rests on."""

    severity: Severity
    confidence: str
    notes: tuple[str, ...]


def judged(hit: Fired, facts: Facts) -> Judged:
    """A finding over the values that open facts may take."""
    severity, confidence = hit.rule.severity, hit.rule.confidence
    notes = [*(_memory(facts) if _judges(hit, facts) else _others(hit, facts))]
    if notes:
        severity, confidence = _less_severe(severity), "low"
    if _judges(hit, facts) and facts.estimate is not None and facts.estimate.undecided:
        severity = "info"
    if hit.about_memory and facts.model is not None and not facts.model.exact:
        severity, confidence = min(severity, "warning", key=SEVERITIES.index), _lower(confidence)
        notes.append(f"the architecture {facts.model.model_type} is unknown; estimated with a similar one")
    return Judged(severity, confidence, tuple(notes))


def _judges(hit: Fired, facts: Facts) -> bool:
    """Whether a rule speaks of what the verdict is about; else it compares bytes that another value changes."""
    return hit.about_memory and (facts.estimate is None or facts.estimate.as_stated in ("tight", "exceeds"))


def _memory(facts: Facts) -> Iterator[str]:
    """What a verdict rests on that does not hold over the whole interval: the facts that move it most."""
    if facts.reading.further:
        yield _FURTHER.format(facts.reading.further)
    for key, entry in [*facts.reading.blanks.items()][:MAX_TOLD]:
        yield f"{key} is not known: {entry.value.plain()} is filled in when the job starts"
    estimate = facts.estimate
    if estimate is None or estimate.unplaced or estimate.verdict == estimate.as_stated:
        return
    least = estimate.as_stated == "exceeds"
    moved = {item: item.low if least else item.high for item in estimate.assumptions}
    most = max(moved.values(), default=0)
    for item in sorted(moved, key=lambda item: -moved[item])[:MAX_TOLD]:
        if moved[item] and moved[item] >= most / SMALL:
            less = f"{bytes_text(moved[item])} {'less' if least else 'more'}"
            yield f"assumes {named(facts.opened, item.field)} {item.value} ({item.origin}); it may be {less}"
    if not most:
        low, high = bytes_text(estimate.per_gpu.low), bytes_text(estimate.per_gpu.high)
        yield f"not certain: the job needs {low} to {high}"


_FURTHER = "`{}` may add arguments when the job starts"

MAX_TOLD, SMALL = 3, 4
"""Facts that are told, those which move the bytes by a quarter of what the first one does."""


def _others(hit: Fired, facts: Facts) -> Iterator[str]:
    """The open facts for another value of which the rule does not hold."""
    from ..estimator.scenarios import may_be

    if facts.reading.further and any(_left_out(path, facts) for path in hit.reads):
        yield _FURTHER.format(facts.reading.further)
    states: dict[str, Facts] = facts.shared.setdefault(_States, _States())
    opened = facts.opened
    for path in opened.unstated:
        fails = []
        for value in may_be(opened, path):
            key = f"{path}={value!r}"
            if key not in states and len(states) < MAX_STATES:
                job = facts.job.with_changes({path: value, "unstated": []})
                states[key] = facts.of(replace(facts.reading, job=job))
            state = states.get(key)
            if state is not None:
                state.item = hit.item
            if state is None or not fires(hit.rule.when, state):
                fails.append(_told(value))
        if fails:
            yield f"assumes {_assumed(opened, path)}; does not hold for {' or '.join(fails)}"


def _left_out(path: str, facts: Facts) -> bool:
    """Whether a fact is what it is because an option is not given."""
    if path.startswith("config."):
        return facts.entry(path) is None
    origin = facts.job.origins.get(path)
    return origin is not None and origin.kind in ("default", "assumed")


class _States(dict[str, "Facts"]):
    """The job with one open fact at another value, each made once for all findings."""


def _assumed(job: Job, path: str) -> str:
    """An open fact as people are told of it: the key, its value, and why nobody knows it."""
    origin = job.origins.get(path)
    why = f" ({origin.note})" if origin is not None and origin.note else ""
    return f"{named(job, path)} {_told(job.get(path))}{why}"


def named(job: Job, path: str) -> str:
    """The key of a field, where one says it, else its path."""
    origin = job.origins.get(path)
    return origin.key if origin is not None and origin.key else path


def _told(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "unknown" if value is None else str(value)


def _less_severe(severity: Severity) -> Severity:
    return SEVERITIES[max(0, SEVERITIES.index(severity) - 1)]


def _lower(confidence: str) -> str:
    return CONFIDENCES[max(0, CONFIDENCES.index(confidence) - 1)]
