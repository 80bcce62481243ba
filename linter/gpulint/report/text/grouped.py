"""Findings below the name of their file, in columns."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from ..printable import printable
from ..style import Style
from ..summary import summary

if TYPE_CHECKING:
    from ...finding import Report


def render(report: Report, *, colour: bool = False, totals: bool = True) -> str:
    """A block a file, then the totals."""
    style = Style(colour)
    blocks = []
    for path, found in groupby(report.findings, key=lambda finding: finding.location.path):
        rows = [
            (f"{item.location.span.line}:{item.location.span.column}", item.severity, f"{item.rule} {item.name}", item)
            for item in found
        ]
        widths = [max(len(str(row[column])) for row in rows) for column in range(3)]
        lines = [style.bold(printable(path))]
        for place, severity, name, item in rows:
            kind = style.severity(severity, f"{severity:<{widths[1]}}")
            lines.append(f"  {place:>{widths[0]}}  {kind}  {name:<{widths[2]}}  {printable(item.message)}")
        blocks.append("\n".join(lines))
    return "\n\n".join([*blocks, *([summary(report, colour=colour)] if totals else [])])
