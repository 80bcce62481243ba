"""Findings as people read them: what is found in many places is one problem, and the gravest come first."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from ..settings.severity import SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..finding import Finding, Report

SCREEN = 40
"""Lines of findings that a run over a folder shows."""

NAMED = 3
"""Other places of a problem that are named; the rest is counted."""

_RETIRED = re.compile(
    r"(?i)(?:^|[/\\])_*(?:old|archived?|archives|deprecated|legacy|retired|obsolete|backups?|bak)_*[/\\]"
    r"|[._-](?:bak|old|orig)(?:\.\w+)?$|~$"
)
"""Paths of what is kept and no longer used."""


class Problem(NamedTuple):
    """A finding, and the same one in other places: in copies of its file, and elsewhere."""

    finding: Finding
    copies: tuple[Finding, ...] = ()
    others: tuple[Finding, ...] = ()

    @property
    def places(self) -> int:
        """How many findings it stands for."""
        return 1 + len(self.copies) + len(self.others)

    def also(self) -> list[str]:
        """Where else it was found, a line each for copies of the file, its other lines, and other files."""
        path = self.finding.location.path
        lines = [str(item.location.span.line) for item in self.others if item.location.path == path]
        far = [item for item in self.others if item.location.path != path]
        copies = list(dict.fromkeys(item.location.path for item in self.copies))
        files: dict[str, str] = {}
        for item in far:
            files.setdefault(item.location.path, f"{item.location.path}:{item.location.span.line}")
        return [
            *([f"also on line{'s' * (len(lines) > 1)} {_listed(lines)}"] if lines else []),
            *([f"also in {_counted(len(files), 'file')}: {_listed([*files.values()])}"] if files else []),
            *([f"also in {_counted(len(copies), 'copy')} of this file: {_listed(copies)}"] if copies else []),
        ]


def told(report: Report, *, once: bool) -> list[Problem]:
    """What the report found; with `once` every fact once.

    Findings of one rule, severity and message are one problem, and so are findings of one rule at one place of files
    of equal text, whose messages may differ by what else their jobs read. Files that are still in use come before
    those of retired folders.
    """
    if not once:
        return [Problem(finding) for finding in report.findings]
    found: dict[tuple[str, str, str], list[Finding]] = {}
    said: dict[tuple[object, ...], str] = {}
    met: Counter[tuple[object, ...]] = Counter()
    for finding in sorted(report.findings, key=lambda item: is_retired(item.location.path)):
        path, kind = finding.location.path, (finding.rule, finding.severity)
        here = (path, *kind, finding.location.span.start)
        met[here] += 1
        text = report.texts.get(path)
        twin = (path if text is None else text, *kind, finding.location.span.start, met[here])
        found.setdefault((*kind, said.setdefault(twin, finding.message)), []).append(finding)
    return [_problem(same, report.texts) for same in found.values()]


def is_retired(path: str) -> bool:
    """Whether a path says that its file is no longer used."""
    return _RETIRED.search(path) is not None


def _problem(same: list[Finding], texts: dict[str, str]) -> Problem:
    first, *others = same
    path = first.location.path
    text = texts.get(path)
    copies: list[Finding] = []
    elsewhere: list[Finding] = []
    for item in others:
        there = item.location.path
        (copies if there != path and text and texts.get(there) == text else elsewhere).append(item)
    return Problem(first, tuple(copies), tuple(elsewhere))


def first_screen(
    problems: Sequence[Problem], block: Callable[[Problem], list[str]], most: int | None
) -> tuple[list[tuple[Problem, list[str]]], list[Problem]]:
    """The problems that are shown, with their lines, and those that are not; with `most`, about as many lines.

    Infos are then left out, errors come first, and of those of one severity one of each rule before a second; no
    warning is shown while an error is not. One problem is shown however long it is.
    """
    if most is None:
        return [(problem, block(problem)) for problem in problems], []
    shown: list[tuple[Problem, list[str]]] = []
    left: list[Problem] = []
    for problem in _ranked(problems):
        severity = problem.finding.severity
        if severity == "info" or (left and left[-1].finding.severity != severity):
            left.append(problem)
            continue
        lines = block(problem)
        if shown and sum(len(text) for _, text in shown) + len(lines) > most:
            left.append(problem)
        else:
            shown.append((problem, lines))
    return shown, left


def _ranked(problems: Sequence[Problem]) -> list[Problem]:
    met: Counter[str] = Counter()
    ranks = []
    for number, problem in enumerate(problems):
        finding = problem.finding
        ranks.append((-SEVERITIES.index(finding.severity), met[finding.rule], -problem.places, number, problem))
        met[finding.rule] += 1
    return [rank[-1] for rank in sorted(ranks)]


def left_out(problems: Iterable[Problem]) -> list[str]:
    """One line about findings that are not shown, none where all are."""
    counts: Counter[str] = Counter()
    for problem in problems:
        counts[problem.finding.severity] += problem.places
    if not counts:
        return []
    kinds = [severity_text(severity, counts[severity]) for severity in reversed(SEVERITIES) if counts[severity]]
    number = sum(counts.values())
    return [f"{number} more finding{'s' * (number > 1)} ({', '.join(kinds)}): --show-all, or --output-format json"]


def severity_text(severity: str, number: int) -> str:
    """`1 error`, `2 warnings`, `3 info`."""
    return f"{number} {severity}{'s' if number != 1 and severity != 'info' else ''}"


def _listed(names: list[str]) -> str:
    more = len(names) - NAMED
    if more <= 1:
        return ", ".join(names)
    return f"{', '.join(names[:NAMED])} and {more} more"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun if number == 1 else {'file': 'files', 'copy': 'copies'}[noun]}"
