"""The benchmark in a few lines: all figures, those whose source tells enough, first answers, each kind of job."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, NamedTuple

from . import fresh_rows
from .case import Row
from .scores import UNSTATED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .case import Case
    from .scores import Scored

WHOLE = frozenset(
    {
        "allocated", "active", "reserved", "process", "allocated summed", "process summed", "last stage",
        "kv_tokens", "kv_bytes",
    }
)  # fmt: skip
"""Figures of a whole run or of an engine's cache; the others are parts of one (weights, a profile run)."""

CLOSE = 0.1
"""The error up to which a figure counts as `within 10%`."""

HEAD = ("", "figures", "median error", "within 10%", "inside the interval", "missed out-of-memory", "false alarms")


class Answer(NamedTuple):
    """One figure and one verdict, each where there is one. `error` is (estimate - measured) / measured."""

    error: float | None
    covered: bool | None
    outcome: str | None
    verdict: str | None


class Line(NamedTuple):
    """Counts and shares of some answers.

    median  of the absolute errors
    close   how many are within 10 %
    inside  how many of `held` figures lie in their interval; of a last stage or a sum over GPUs there is none
    missed  runs out of memory, of `oom`, that were said to fit
    alarms  runs that fitted, of `fits`, that were said to exceed the GPU
    """

    name: str
    n: int
    median: float
    close: int
    inside: int
    held: int
    missed: int
    oom: int
    alarms: int
    fits: int


def line(name: str, answers: Iterable[Answer]) -> Line:
    """The line of some answers."""
    given = list(answers)
    sizes = [abs(answer.error) for answer in given if answer.error is not None]
    covered = [answer.covered for answer in given if answer.covered is not None]
    oom = [answer.verdict for answer in given if answer.outcome == "oom" and answer.verdict]
    fits = [answer.verdict for answer in given if answer.outcome == "fits" and answer.verdict]
    return Line(
        name,
        len(sizes),
        round(statistics.median(sizes), 4) if sizes else 0.0,
        sum(size <= CLOSE for size in sizes),
        sum(covered),
        len(covered),
        oom.count("fits"),
        len(oom),
        fits.count("exceeds"),
        len(fits),
    )


def totals(scored: Sequence[Scored], rows: Iterable[Row] | None = None) -> list[Line]:
    """All published rows, those whose source tells what decides, first answers, those to the newest, traced runs."""
    found = fresh_rows.rows() if rows is None else list(rows)
    published = [item for item in scored if item.case.group != "oracle"]
    traced = [item for item in scored if item.case.group == "oracle"]
    return [
        line("all published rows", map(_answer, published)),
        line("rows whose source states what decides the memory", map(_answer, filter(_told, published))),
        line("rows of our own search, as first answered", first_answers(found)),
        line("rows of the newest search, as first answered", first_answers(newest(found))),
        line("runs traced with real Transformers code", map(_answer, traced)),
    ]


def kinds(scored: Iterable[Scored]) -> list[Line]:
    """A line a kind of job, over all published rows."""
    groups: dict[str, list[Answer]] = {name: [] for name, _ in KINDS}
    for item in scored:
        if item.case.group != "oracle":
            groups[kind(item.case)].append(_answer(item))
    return [line(name, answers) for name, answers in groups.items()]


def kind(case: Case) -> str:
    """The name of the first kind in KINDS that a case is of."""
    return next(name for name, holds in KINDS if holds(case))


def newest(rows: Sequence[Row]) -> list[Row]:
    """The rows of the search with the highest number, which is the end of their groups' names."""
    numbers = [int(row["group"].rpartition(", set ")[2]) if ", set " in row["group"] else 1 for row in rows]
    return [row for row, number in zip(rows, numbers, strict=True) if number == max(numbers)]


def first_answers(given: Iterable[Row]) -> list[Answer]:
    """What was answered of each row of the search on the day it was found."""
    found = []
    for row in given:
        first, measured = row["blind"], row["measured"]
        error = first["value"] / measured - 1 if measured is not None and "value" in first and _whole(row) else None
        covered = first["low"] <= measured <= first["high"] if error is not None and "low" in first else None
        found.append(Answer(error, covered, row.get("outcome"), first.get("verdict")))
    return found


def cells(lines: Iterable[Line]) -> list[tuple[str, ...]]:
    """The lines as cells of a table."""
    return [
        (
            given.name,
            f"{given.n:,}",
            f"{given.median:.1%}" if given.n else "",
            _share(given.close, given.n),
            _share(given.inside, given.held),
            f"{given.missed:,} of {given.oom:,}" if given.oom else "",
            f"{given.alarms:,} of {given.fits:,}" if given.fits else "",
        )
        for given in lines
    ]


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%} of {whole:,}" if whole else ""


def _whole(row: Row) -> bool:
    return row["blind"].get("figure", row["figure"]) in WHOLE


def _answer(item: Scored) -> Answer:
    whole = item.case.figure in WHOLE
    verdict = item.estimate.verdict if item.estimate.capacity is not None else None
    return Answer(item.error if whole else None, item.covered if whole else None, item.case.outcome, verdict)


def _told(item: Scored) -> bool:
    case = item.case
    return (
        case.group not in UNSTATED and case.counted and case.strict and not case.unknown and case.confidence == "high"
    )


def _adapter(case: Case) -> bool:
    return case.job.adapter is not None


def _divided(case: Case) -> bool:
    plan = case.job.parallelism
    return any(degree > 1 for degree in (plan.tensor, plan.pipeline, plan.context, plan.expert))


KINDS: tuple[tuple[str, Callable[[Case], bool]], ...] = (
    ("vLLM start", lambda case: case.job.inference is not None and case.job.inference.engine == "vllm"),
    ("SGLang start", lambda case: case.job.inference is not None and case.job.inference.engine == "sglang"),
    ("generation and other engines", lambda case: case.job.kind == "inference"),
    ("QLoRA", lambda case: _adapter(case) and case.job.weights.quantization is not None),
    ("LoRA and other adapters", _adapter),
    ("full training, one GPU", lambda case: case.job.world_size == 1),
    ("full training, tensor, pipeline, context or expert parallel", _divided),
    ("full training, data parallel (DDP, ZeRO, FSDP)", lambda _: True),
)
"""Kinds of job, each with what makes a case one; the first that holds counts."""
