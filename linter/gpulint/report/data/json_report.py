"""The report as one JSON object, `gpulint-report/1`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...finding import Finding, Location, Report, Suggestion

SCHEMA = "gpulint-report/1"


def render(report: Report) -> str:
    """The report as JSON text; `schemas/report.json` describes it."""
    return json.dumps(as_object(report), indent=2)


def as_object(report: Report) -> dict[str, Any]:
    """The report as plain data."""
    return {
        "schema": SCHEMA,
        "files": [
            {
                "path": file.path,
                "format": file.format,
                "status": file.status,
                "reason": file.reason or None,
                "line": file.line or None,
                "column": file.column or None,
            }
            for file in report.files
        ],
        "findings": [finding_object(finding) for finding in report.findings],
        "summary": {
            "files": len(report.files),
            "checked": report.count("checked"),
            "skipped": report.count("skipped"),
            "errors": report.count("error"),
            "suppressed": report.suppressed,
            "baselined": report.baselined,
            "gone": report.gone,
            "findings": report.severity_counts(),
        },
    }


def finding_object(finding: Finding) -> dict[str, Any]:
    """One finding as plain data."""
    out: dict[str, Any] = {
        "rule": finding.rule,
        "name": finding.name,
        "severity": finding.severity,
        "confidence": finding.confidence,
        **place(finding.location),
        "message": finding.message,
        "notes": list(finding.notes),
        "related": [{**place(location), "label": location.label} for location in finding.related],
        "suggestions": [_suggestion(suggestion) for suggestion in finding.suggestions],
        "fingerprint": finding.fingerprint,
    }
    if finding.estimate is not None:
        from .json_estimate import per_gpu

        estimate = finding.estimate
        out["estimate"] = {
            "per_gpu": per_gpu(estimate),
            "components": estimate.components,
            "peak_phase": estimate.peak_phase,
            "verdict": estimate.verdict,
        }
    return out


def place(location: Location) -> dict[str, Any]:
    """A location as path, line, column, end_line and end_column."""
    span = location.span
    return {
        "path": location.path,
        "line": span.line,
        "column": span.column,
        "end_line": span.end_line,
        "end_column": span.end_column,
    }


def _suggestion(suggestion: Suggestion) -> dict[str, Any]:
    return {
        "text": suggestion.text,
        "per_gpu": suggestion.per_gpu,
        "effect": suggestion.effect,
        "cost": suggestion.cost or None,
        "applicability": suggestion.applicability,
        "edits": [
            {"path": edit.path, "start": edit.start, "end": edit.end, "text": edit.text} for edit in suggestion.edits
        ],
    }
