"""From cases to scores: errors by group, coverage of the intervals, verdicts against outcomes."""

from __future__ import annotations

import hashlib
import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gpulint.estimator.estimate import NotEstimable
from gpulint.models.model import UnknownModel

from . import figures
from .case import Case, Excluded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpulint.estimator.estimate import Estimate

ENGINE = frozenset({"kv_tokens", "kv_bytes", "profile run", "weights", "resident", "load"})
"""Figures that are parts of an estimate, left out of the totals over whole runs."""

UNSTATED = frozenset({"qwen1_readme_finetune", "axolotl", "issues", "fms kernels (approximate jobs)"})
"""Groups whose sources do not say what was counted, or whose jobs are approximate: left out of the totals."""

FRESH = "fresh"
"""Begins the names of the groups of our own search (`fresh*.json`), which stand for themselves."""


class Scored(NamedTuple):
    """A case with its estimate. `error` is (estimate - measured) / measured, None without a measured value."""

    case: Case
    estimate: Estimate
    value: float
    error: float | None
    covered: bool | None


class Answer(Protocol):
    """A relative error and whether the interval held the figure, None where there is none."""

    @property
    def error(self) -> float | None:
        """(estimate - measured) / measured."""

    @property
    def covered(self) -> bool | None:
        """Whether low..high holds what was measured."""


class Score(NamedTuple):
    """Errors of a group, as fractions. `coverage` is the share of measured values inside low..high."""

    name: str
    n: int
    mape: float
    median: float
    p95: float
    over: float
    under: float
    coverage: float | None


class Verdicts(NamedTuple):
    """How many rows of each outcome got which verdict."""

    name: str
    counts: dict[str, dict[str, int]]

    @property
    def missed(self) -> int:
        """Runs that ran out of memory and were said to fit."""
        return self.counts["oom"].get("fits", 0)

    @property
    def alarms(self) -> int:
        """Runs that fitted and were said to exceed."""
        return self.counts["fits"].get("exceeds", 0)


SHARE = 6
"""The tests score one row in so many, by a hash of its name; the benchmark scores all."""


def is_tested(case: Case) -> bool:
    """Whether the row is of the share that the tests score."""
    name = f"{case.group} {case.id}".encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:8], "big") % SHARE == 0


def score_all(cases: Iterable[Case]) -> tuple[list[Scored], list[Excluded]]:
    """Estimate every case; what the estimator refuses is excluded with its reason."""
    scored: list[Scored] = []
    refused: list[Excluded] = []
    previous: tuple[object, Estimate] | None = None
    for case in cases:
        try:
            estimate = previous[1] if previous and previous[0] is case.job else figures.run(case.job)
            previous = (case.job, estimate)
            value = figures.value(case, estimate)
        except (NotEstimable, UnknownModel) as reason:
            refused.append(Excluded(case.id, case.group, f"not estimable: {reason}"))
            continue
        except (KeyError, IndexError, ValueError, TypeError, AttributeError, ZeroDivisionError) as crash:
            refused.append(Excluded(case.id, case.group, f"THE ESTIMATOR FAILED: {type(crash).__name__} {crash}"))
            continue
        error = value / case.measured - 1 if case.measured else None
        bounds = figures.interval(case, estimate)
        covered = _covers(case, bounds) if bounds and case.measured else None
        scored.append(Scored(case, estimate, value, error, covered))
    return scored, refused


def _covers(case: Case, bounds: tuple[int, int]) -> bool:
    """Whether low..high holds the figure, in either unit that its source may mean."""
    low, high = bounds[0] - case.rounded, bounds[1] + case.rounded
    readings = (reading for reading in (case.measured, case.other) if reading is not None)
    return any(low <= reading <= high for reading in readings)


def by_group(scored: Iterable[Scored]) -> list[Score]:
    """One score for each group and figure, and totals over whole runs with a stated counter."""
    groups: dict[str, list[Scored]] = defaultdict(list)
    totals: dict[str, list[Scored]] = defaultdict(list)
    for item in scored:
        if item.error is None:
            continue
        figure = item.case.figure
        groups[f"{item.case.group} / {figure}"].append(item)
        apart = item.case.group in {*UNSTATED, "oracle"} or item.case.group.startswith(FRESH)
        if figure not in ENGINE and not apart:
            kind = "allocated" if figure == "active" else figure.removesuffix(" summed")
            totals[f"all published / {kind}"].append(item)
            if item.case.confidence == "high":
                totals[f"high confidence / {kind}"].append(item)
    found = [summary(name, items) for name, items in groups.items()]
    return [*found, *(summary(name, items) for name, items in totals.items())]


def summary(name: str, items: Sequence[Answer]) -> Score:
    """The statistics of some scored rows."""
    errors = sorted(item.error for item in items if item.error is not None)
    sizes = sorted(abs(error) for error in errors)
    covered = [item.covered for item in items if item.covered is not None]
    return Score(
        name,
        len(errors),
        statistics.fmean(sizes),
        statistics.median(errors),
        sizes[min(len(sizes) - 1, int(0.95 * len(sizes)))],
        errors[-1],
        errors[0],
        sum(covered) / len(covered) if covered else None,
    )


def verdicts(scored: Iterable[Scored]) -> list[Verdicts]:
    """Confusion of outcome and verdict: all rows, and those whose source tells enough."""
    every: dict[str, dict[str, dict[str, int]]] = {}
    for item in scored:
        outcome = item.case.outcome
        if outcome is None or item.estimate.capacity is None:
            continue
        totals = ["fresh", "fresh strict"] if item.case.group.startswith(FRESH) else ["all", "strict"]
        names = [f"group {item.case.group}", *(totals if item.case.strict else totals[:1])]
        for name in names:
            counts = every.setdefault(name, {"fits": {}, "oom": {}})[outcome]
            counts[item.estimate.verdict] = counts.get(item.estimate.verdict, 0) + 1
    return [Verdicts(name, counts) for name, counts in every.items()]
