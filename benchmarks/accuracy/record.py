"""`recorded.json`: the scores that a change must not make worse, and all that the pages of docs/ show of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .headline import Line
from .scores import Score, Verdicts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PATH = Path(__file__).parent / "recorded.json"
SLACK = 0.002
"""How much a group's mean error may grow before it counts as worse."""

SUMS = ("all", "strict", "fresh", "fresh strict")
"""The sums of verdicts; of single groups only the errors are held."""

LINES = ("totals", "kinds")


def build(
    scores: Iterable[Score], found: Iterable[Verdicts], totals: Iterable[Line] = (), kinds: Iterable[Line] = ()
) -> dict[str, Any]:
    """Scores, counts of verdicts and the lines of the headline as plain data."""
    return {
        "totals": [line._asdict() for line in totals],
        "kinds": [line._asdict() for line in kinds],
        "scores": {score.name: _rounded(score) for score in scores},
        "verdicts": {item.name: item.counts for item in found},
    }


def _rounded(score: Score) -> dict[str, float | int | None]:
    values = score._asdict()
    name, n, coverage = values.pop("name"), values.pop("n"), values.pop("coverage")
    assert name == score.name
    share = None if coverage is None else round(coverage, 3)
    return {"n": n, **{key: round(value, 4) for key, value in values.items()}, "coverage": share}


def read() -> dict[str, Any]:
    """What is recorded."""
    recorded: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    return recorded


def write(now: dict[str, Any], tables: dict[str, Sequence[Sequence[str]]]) -> None:
    """Record what `build` made, and tables whose cells are shown as they are: a row a line."""
    parts = (f"  {json.dumps(name)}: [\n{_rows(rows)}\n  ]" for name, rows in tables.items())
    text = json.dumps(now, indent=1).removesuffix("\n}") + ',\n "tables": {\n' + ",\n".join(parts) + "\n }\n}\n"
    PATH.write_text(text, encoding="utf-8")


def _rows(rows: Sequence[Sequence[str]]) -> str:
    return ",\n".join(f"   {json.dumps(row, ensure_ascii=False)}" for row in rows)


def lines(recorded: dict[str, Any], part: str) -> list[Line]:
    """The recorded `totals` or `kinds`."""
    return [Line(**values) for values in recorded[part]]


def scores(recorded: dict[str, Any]) -> list[Score]:
    """The recorded scores."""
    return [Score(name, **values) for name, values in recorded["scores"].items()]


def verdicts(recorded: dict[str, Any]) -> list[Verdicts]:
    """The recorded counts of verdicts."""
    return [Verdicts(name, counts) for name, counts in recorded["verdicts"].items()]


def worse(recorded: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What got worse: fewer rows, larger errors, fewer figures inside their interval, more wrong verdicts."""
    return [
        *_worse_scores(recorded["scores"], now["scores"]),
        *_worse_verdicts(recorded, now),
        *_worse_lines(recorded, now),
    ]


def _worse_scores(recorded: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    for name, before in recorded.items():
        after = now.get(name)
        if after is None or after["n"] < before["n"]:
            yield f"{name}: {before['n']} rows were scored, now {after['n'] if after else 0}"
        elif after["mape"] > before["mape"] + SLACK:
            yield f"{name}: mean error {before['mape']:.2%} -> {after['mape']:.2%}"


def _worse_verdicts(recorded: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    found = {item.name: item for item in verdicts(now)}
    for before in verdicts(recorded):
        after = found.get(before.name, Verdicts(before.name, {"fits": {}, "oom": {}}))
        if before.name in SUMS:
            pairs = (("missed", before.missed, after.missed), ("alarms", before.alarms, after.alarms))
            yield from (f"verdicts {before.name}: {kind} {one} -> {two}" for kind, one, two in pairs if two > one)


def _worse_lines(recorded: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """The lines that docs/accuracy.md begins with; a kind of job is a line too."""
    found = {line.name: line for part in LINES for line in lines(now, part)}
    for before in (line for part in LINES for line in lines(recorded, part)):
        after = found.get(before.name)
        if after is None or after.n < before.n:
            yield f"{before.name}: {before.n} figures, now {after.n if after else 0}"
        elif after.median > before.median + SLACK:
            yield f"{before.name}: median error {before.median:.2%} -> {after.median:.2%}"
        elif after.inside * before.held < before.inside * after.held - SLACK * before.held * after.held:
            yield f"{before.name}: inside {before.inside} of {before.held} -> {after.inside} of {after.held}"
