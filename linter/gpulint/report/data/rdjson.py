"""The Reviewdog Diagnostic Format (https://github.com/reviewdog/reviewdog/tree/master/proto/rdf)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..advice import advice
from ..printable import json_text

if TYPE_CHECKING:
    from ...finding import Finding, Report

_SEVERITIES = {"error": "ERROR", "warning": "WARNING", "info": "INFO"}


def render(report: Report) -> str:
    """One `DiagnosticResult`. Columns count UTF-8 bytes from 1, as the format has it."""
    return json_text(
        {
            "source": {"name": "gpulint"},
            "diagnostics": [_diagnostic(finding, report.texts) for finding in report.findings],
        },
    )  # fmt: skip


def _diagnostic(finding: Finding, texts: dict[str, str]) -> dict[str, Any]:
    path, span = finding.location.path, finding.location.span
    text = texts.get(path, "")
    help_lines = [f"help: {advice(suggestion)}" for suggestion in finding.suggestions]
    whole = span.end > span.start
    return {
        "message": "\n".join([finding.message, *finding.notes, *help_lines]),
        "location": {
            "path": path,
            "range": _range(text, span.start, span.end) if whole else {"start": {"line": span.line, "column": 1}},
        },
        "severity": _SEVERITIES[finding.severity],
        "code": {"value": f"{finding.rule} {finding.name}"},
        "suggestions": [
            {"range": _range(text, edit.start, edit.end), "text": edit.text}
            for suggestion in finding.suggestions
            if len(suggestion.edits) == 1
            for edit in suggestion.edits
            if edit.path == path
        ],
    }


def _range(text: str, start: int, end: int) -> dict[str, Any]:
    return {"start": _position(text, start), "end": _position(text, end)}


def _position(text: str, offset: int) -> dict[str, int]:
    line_start = text.rfind("\n", 0, offset) + 1
    column = len(text[line_start:offset].encode("utf-8", "surrogatepass")) + 1
    return {"line": text.count("\n", 0, offset) + 1, "column": column}
