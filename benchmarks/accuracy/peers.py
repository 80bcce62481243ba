"""Other estimators on the same rows: errors side by side with ours, and verdicts from the number that each gives."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.peers import PEERS
from benchmarks.peers.question import Question, Unrecorded, Unsaid
from gpulint.models.resolve import resolve

from .case import gpu
from .scores import UNSTATED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .case import Case
    from .scores import Scored

HEAD = ("group / figure", "estimator", "n of", "MAPE", "median", "worst", "gpulint MAPE", "median", "worst")
VERDICT_HEAD = ("estimator", "strict rows", "missed OOM", "false alarms", "gpulint missed", "false alarms")
COUNTERS = {
    "allocated": "allocated",
    "allocated summed": "allocated",
    "active": "allocated",
    "reserved": "reserved",
    "process": "process",
    "process summed": "process",
}
"""Figures of whole runs; the parts of a run are not what other estimators say."""
TOTALS = ("all published", "oracle")


class Answer(NamedTuple):
    """What a peer said of a scored row: bytes of the row's figure, and of the process on one GPU."""

    peer: str
    item: Scored
    value: float
    each: float


def questions(scored: Iterable[Scored]) -> Iterator[Question]:
    """The rows of whole runs as questions."""
    for item in scored:
        if item.case.figure in COUNTERS:
            yield _question(item.case, COUNTERS[item.case.figure])


def _question(case: Case, counter: str) -> Question:
    assert case.job.model is not None
    job = case.job
    if case.figure == "allocated summed":
        job = job.with_changes({"hardware.gpus": 1, "parallelism.device_map": None})
    return Question(job, resolve(job.model or ""), gpu(job), counter)


def answers(scored: Iterable[Scored]) -> tuple[list[Answer], int]:
    """Every answer of every peer on rows of whole runs, and how many questions were never put to a tool."""
    found, unrecorded = [], 0
    for item in scored:
        if item.case.figure not in COUNTERS:
            continue
        question = _question(item.case, COUNTERS[item.case.figure])
        ranks = item.case.job.world_size if item.case.figure == "process summed" else 1
        for peer, ask in PEERS.items():
            try:
                value = ask(question) * ranks
                each = ask(question._replace(counter="process"))
            except Unsaid as reason:
                unrecorded += isinstance(reason, Unrecorded)
                continue
            found.append(Answer(peer, item, value, each))
    return found, unrecorded


def table(scored: Sequence[Scored], found: Sequence[Answer]) -> list[tuple[str, ...]]:
    """A row for each group, figure and peer with a measured value in common, totals first."""
    asked: dict[str, int] = defaultdict(int)
    for item in scored:
        if item.error is not None and item.case.figure in COUNTERS:
            for name in _names(item):
                asked[name] += 1
    pairs: dict[tuple[str, str], list[Answer]] = defaultdict(list)
    for answer in found:
        if answer.item.error is not None:
            for name in _names(answer.item):
                pairs[name, answer.peer].append(answer)
    order = list(PEERS)
    keys = sorted(pairs, key=lambda key: (not key[0].startswith(TOTALS), key[0], order.index(key[1])))
    return [_row(name, peer, pairs[name, peer], asked[name]) for name, peer in keys]


def _names(item: Scored) -> list[str]:
    case = item.case
    names = [f"{case.group} / {case.figure}"]
    if case.group not in {*UNSTATED, "oracle"}:
        names.append(f"all published / {COUNTERS[case.figure]}")
    return names


def _row(name: str, peer: str, said: Sequence[Answer], asked: int) -> tuple[str, ...]:
    theirs = [answer.value / (answer.item.case.measured or 1) - 1 for answer in said]
    ours = [answer.item.error or 0.0 for answer in said]
    return (name, peer, f"{len(said)} of {asked}", *_errors(theirs), *_errors(ours))


def _errors(errors: Sequence[float]) -> tuple[str, str, str]:
    worst = max(errors, key=abs)
    return f"{statistics.fmean(map(abs, errors)):.1%}", f"{statistics.median(errors):+.1%}", f"{worst:+.1%}"


def verdicts(found: Sequence[Answer]) -> list[tuple[str, ...]]:
    """Strict rows with a GPU: runs out of memory that a peer's number fits on the card, and the reverse."""
    rows: list[tuple[str, ...]] = []
    for peer in PEERS:
        said = [answer for answer in found if answer.peer == peer and _strict(answer.item)]
        if not said:
            continue
        oom = [answer for answer in said if answer.item.case.outcome == "oom"]
        fits = [answer for answer in said if answer.item.case.outcome == "fits"]
        missed = sum(not _exceeds(answer) for answer in oom)
        alarms = sum(_exceeds(answer) for answer in fits)
        ours = [[answer.item.estimate.verdict for answer in part] for part in (oom, fits)]
        rows.append(
            (
                peer, str(len(said)), f"{missed} of {len(oom)}", f"{alarms} of {len(fits)}",
                f"{ours[0].count('fits')} of {len(oom)}", f"{ours[1].count('exceeds')} of {len(fits)}",
            )
        )  # fmt: skip
    return rows


def _strict(item: Scored) -> bool:
    return bool(item.case.strict and item.case.outcome and item.estimate.capacity)


def _exceeds(answer: Answer) -> bool:
    capacity = answer.item.estimate.capacity
    assert capacity is not None
    return bool(answer.each > capacity.usable)
