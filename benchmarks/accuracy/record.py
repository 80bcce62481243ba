"""`recorded.json`: the scores that a change must not make worse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .scores import Score, Verdicts

PATH = Path(__file__).parent / "recorded.json"
SLACK = 0.002
"""How much a group's mean error may grow before it counts as worse."""


def build(scores: Iterable[Score], found: Iterable[Verdicts]) -> dict[str, Any]:
    """Scores and verdict counts as plain data."""
    return {
        "scores": {
            s.name: {
                "n": s.n,
                "mape": round(s.mape, 4),
                "p95": round(s.p95, 4),
                "over": round(s.over, 4),
                "under": round(s.under, 4),
                "coverage": None if s.coverage is None else round(s.coverage, 3),
            }
            for s in scores
        },
        "verdicts": {v.name: {"missed": v.missed, "alarms": v.alarms} for v in found if not v.name.startswith("group")},
    }


def read() -> dict[str, Any]:
    """The recorded scores."""
    recorded: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    return recorded


def write(scores: Iterable[Score], found: Iterable[Verdicts]) -> None:
    """Record these scores."""
    PATH.write_text(json.dumps(build(scores, found), indent=1) + "\n", encoding="utf-8")


def worse(recorded: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What got worse: fewer rows in a group, a larger mean error, a group gone, more wrong verdicts."""
    found = []
    for name, before in recorded["scores"].items():
        after = now["scores"].get(name)
        if after is None or after["n"] < before["n"]:
            found.append(f"{name}: {before['n']} rows were scored, now {after['n'] if after else 0}")
        elif after["mape"] > before["mape"] + SLACK:
            found.append(f"{name}: mean error {before['mape']:.2%} -> {after['mape']:.2%}")
    for name, before in recorded["verdicts"].items():
        after = now["verdicts"].get(name, {"missed": 0, "alarms": 0})
        found += [
            f"verdicts {name}: {kind} {before[kind]} -> {after[kind]}"
            for kind in ("missed", "alarms")
            if after[kind] > before[kind]
        ]
    return found
