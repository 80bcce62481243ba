"""GitHub Actions annotations (workflow commands `::error file=...::message`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..advice import advice
from ..printable import printable
from ..problems import told

if TYPE_CHECKING:
    from ...finding import Report
    from ..problems import Problem

_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


def render(report: Report, *, once: bool = False) -> str:
    """One command a finding, with `once` a problem, or unreadable file.

    The message repeats the place, since the log shows no properties; columns are given only for spans of one
    line, the others misrender.
    """
    lines = [_problem(problem) for problem in told(report, once=once)]
    for file in report.files:
        if file.status == "error":
            place = f",line={file.line}" if file.line else ""
            lines.append(f"::error file={_property(file.path)}{place}::{_data(f'{file.path}: {file.reason}')}")
    return "\n".join(lines)


def _problem(problem: Problem) -> str:
    finding = problem.finding
    span = finding.location.span
    path = finding.location.path
    columns = f",col={span.column},endColumn={span.end_column}" if span.line == span.end_line else ""
    properties = (
        f"file={_property(path)},line={span.line},endLine={span.end_line}{columns},"
        f"title={_property(f'{finding.rule} {finding.name}')}"
    )
    parts = [f"{path}:{span.line}:{span.column}: {finding.rule} {finding.message}", *finding.notes, *problem.also()]
    parts += [f"help: {advice(suggestion)}" for suggestion in finding.suggestions]
    return f"::{_COMMANDS[finding.severity]} {properties}::" + "%0A".join(_data(part) for part in parts)


def _data(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
