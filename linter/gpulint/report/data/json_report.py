"""The report as one JSON object, `gpulint-report/1`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ...declared import plain
from ..printable import json_text
from . import shape

if TYPE_CHECKING:
    from ...estimator.estimate import Estimate
    from ...finding import Finding, Location, Report, Suggestion


def render(report: Report) -> str:
    """The report as JSON text; `schemas/report.json` describes it."""
    return json_text(as_object(report))


def as_object(report: Report) -> dict[str, Any]:
    """The report as plain data."""
    files = tuple(
        shape.File(
            path=file.path,
            format=file.format,
            status=file.status,
            reason=file.reason or None,
            line=file.line or None,
            column=file.column or None,
            jobs=tuple(
                shape.JobOfFile(job.part or None, job.verdict, job.why or None, job.settles or None)
                for job in file.jobs
            ),
        )
        for file in report.files
    )
    summary = shape.Summary(
        files=len(report.files),
        checked=report.count("checked"),
        skipped=report.count("skipped"),
        errors=report.count("error"),
        not_checked=len(report.not_checked()),
        suppressed=report.suppressed,
        baselined=report.baselined,
        gone=tuple(report.gone),
        findings=shape.Severities(**report.severity_counts()),
    )
    found: dict[str, Any] = plain(shape.Report(shape.REPORT, files, tuple(map(_finding, report.findings)), summary))
    return found


def finding_object(finding: Finding) -> dict[str, Any]:
    """One finding as plain data."""
    found: dict[str, Any] = plain(_finding(finding))
    return found


def _finding(finding: Finding) -> shape.Finding:
    return shape.Finding(
        rule=finding.rule,
        name=finding.name,
        severity=finding.severity,
        confidence=cast("shape.Confidence", finding.confidence),
        **_place(finding.location),
        message=finding.message,
        notes=finding.notes,
        related=tuple(shape.Label(**_place(location), label=location.label) for location in finding.related),
        suggestions=tuple(map(_suggestion, finding.suggestions)),
        fingerprint=finding.fingerprint,
        estimate=None if finding.estimate is None else _peak(finding.estimate),
    )


def _suggestion(suggestion: Suggestion) -> shape.Suggestion:
    return shape.Suggestion(
        text=suggestion.text,
        per_gpu=suggestion.per_gpu,
        effect=suggestion.effect,
        cost=suggestion.cost or None,
        applicability=suggestion.applicability,
        edits=suggestion.edits,
    )


def _peak(estimate: Estimate) -> shape.FindingEstimate:
    components = shape.Components(**estimate.components)
    return shape.FindingEstimate(estimate.per_gpu, components, estimate.peak_phase, estimate.verdict)


def _place(location: Location) -> dict[str, Any]:
    span = location.span
    return {
        "path": location.path,
        "line": span.line,
        "column": span.column,
        "end_line": span.end_line,
        "end_column": span.end_column,
    }
