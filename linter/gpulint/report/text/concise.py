"""One line a finding, for editors, grep and programs that read text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..printable import printable
from ..style import Style
from ..summary import summary

if TYPE_CHECKING:
    from ...finding import Finding, Report


def render(report: Report, *, colour: bool = False, totals: bool = True, once: bool = False) -> str:
    """`path:line:column: severity ID name: message` for each finding, then the totals."""
    style = Style(colour)
    end = [summary(report, colour=colour, once=once)] if totals else []
    return "\n".join([*(line(finding, style) for finding in report.findings), *end])


def line(finding: Finding, style: Style) -> str:
    """One finding, its first suggestion included."""
    span = finding.location.span
    place = style.bold(printable(f"{finding.location.path}:{span.line}:{span.column}"))
    kind = style.severity(finding.severity, f"{finding.severity} {finding.rule}")
    advice = f"; help: {printable(finding.suggestions[0].text)}" if finding.suggestions else ""
    return f"{place}: {kind} {finding.name}: {printable(finding.message)}{advice}"
