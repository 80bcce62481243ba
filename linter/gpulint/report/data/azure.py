"""Azure Pipelines' logging commands (https://learn.microsoft.com/azure/devops/pipelines/scripts/logging-commands)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..printable import printable
from ..problems import told

if TYPE_CHECKING:
    from ...finding import Report

_TYPES = {"error": "error", "warning": "warning", "info": "warning"}


def render(report: Report, *, once: bool = False) -> str:
    """One `task.logissue` a finding, with `once` a problem, or unreadable file; Azure knows no level below warning."""
    lines = []
    for problem in told(report, once=once):
        finding = problem.finding
        span = finding.location.span
        properties = {
            "type": _TYPES[finding.severity],
            "sourcepath": finding.location.path,
            "linenumber": str(span.line),
            "columnnumber": str(span.column),
            "code": finding.rule,
        }
        also = "".join(f"; {place}" for place in problem.also())
        advice = f"; help: {finding.suggestions[0].text}" if finding.suggestions else ""
        lines.append(_command(properties, f"{finding.name}: {finding.message}{also}{advice}"))
    for file in report.files:
        if file.status == "error":
            where = {"linenumber": str(file.line)} if file.line else {}
            lines.append(_command({"type": "error", "sourcepath": file.path, **where}, f"{file.path}: {file.reason}"))
    return "\n".join(lines)


def _command(properties: dict[str, str], message: str) -> str:
    joined = "".join(f"{name}={_property(value)};" for name, value in properties.items())
    return f"##vso[task.logissue {joined}]{_data(message)}"


def _data(text: str) -> str:
    return printable(text).replace("%", "%AZP25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(";", "%3B").replace("]", "%5D")
