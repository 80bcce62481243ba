"""Findings below the name of their file, in columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..printable import printable
from ..problems import first_screen, left_out, told
from ..style import Style
from ..summary import summary

if TYPE_CHECKING:
    from ...finding import Report
    from ..problems import Problem


def render(
    report: Report, *, colour: bool = False, totals: bool = True, once: bool = False, most: int | None = None
) -> str:
    """A block a file, then the totals. With `once` every fact is told once, with `most` about as many lines are."""
    style = Style(colour)
    shown, left = first_screen(told(report, once=once), lambda problem: ["", *problem.also()], most)
    files: dict[str, list[Problem]] = {}
    for problem, _ in shown:
        files.setdefault(problem.finding.location.path, []).append(problem)
    blocks = ["\n".join(_block(path, found, style)) for path, found in files.items()]
    end = [*left_out(left), *([summary(report, colour=colour, once=once)] if totals else [])]
    return "\n\n".join([*blocks, *(["\n".join(end)] if end else [])])


def _block(path: str, found: list[Problem], style: Style) -> list[str]:
    items = [problem.finding for problem in found]
    rows = [
        (f"{item.location.span.line}:{item.location.span.column}", item.severity, f"{item.rule} {item.name}")
        for item in items
    ]
    widths = [max(len(str(row[column])) for row in rows) for column in range(3)]
    lines = [style.bold(printable(path))]
    for (place, severity, name), problem in zip(rows, found, strict=True):
        kind = style.severity(severity, f"{severity:<{widths[1]}}")
        lines.append(f"  {place:>{widths[0]}}  {kind}  {name:<{widths[2]}}  {printable(problem.finding.message)}")
        lines += [f"  {'':>{widths[0]}}  {printable(place)}" for place in problem.also()]
    return lines
