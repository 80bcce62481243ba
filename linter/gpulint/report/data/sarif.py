"""SARIF 2.1.0, as GitHub code scanning reads it (https://docs.oasis-open.org/sarif/sarif/v2.1.0/)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ...settings.severity import SEVERITIES
from ..advice import advice
from ..printable import json_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...finding import Finding, Location, Report, Suggestion
    from ...rules.load import RuleText
    from ...source.edit.replacement import Edit

MAX_RESULTS = 25_000
"""GitHub refuses a run with more (docs.github.com, SARIF support for code scanning)."""

MAX_LOCATIONS = 1_000
"""And a result with more locations."""

_LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def render(report: Report, rules: Sequence[RuleText], version: str) -> str:
    """The report as SARIF text: one run, the rules that fired, `results` present when empty.

    Of more results than code scanning takes, the most serious are kept, and a notification says how many are not.
    """
    findings = report.findings
    if len(findings) > MAX_RESULTS:
        findings = sorted(findings, key=lambda finding: -SEVERITIES.index(finding.severity))[:MAX_RESULTS]
    left_out = len(report.findings) - len(findings)
    fired = {finding.rule for finding in findings}
    listed = [rule for rule in rules if rule.id in fired]
    index = {rule.id: number for number, rule in enumerate(listed)}
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "gpulint",
                        "semanticVersion": version,
                        "rules": [_rule(rule) for rule in listed],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "invocations": [
                    {
                        "executionSuccessful": report.count("error") == 0,
                        "toolExecutionNotifications": [
                            *_notifications(report),
                            *(
                                [_notification("warning", f"{left_out} findings left out, more than {MAX_RESULTS}")]
                                if left_out
                                else []
                            ),
                        ],
                    }
                ],
                "results": [_result(finding, index, report.texts) for finding in findings],
            }
        ],
    }
    return json_text(log)


def _notifications(report: Report) -> Iterator[dict[str, Any]]:
    """The files that could not be read, and the jobs whose memory was not checked."""
    for file in report.files:
        if file.status == "error":
            yield _notification("error", file.reason, file.path)
        for job in file.jobs:
            if job.unchecked:
                yield _notification("note", f"{job.part}: {job.unchecked}" if job.part else job.unchecked, file.path)


def _notification(level: str, text: str, path: str = "") -> dict[str, Any]:
    place = {"locations": [{"physicalLocation": {"artifactLocation": {"uri": _uri(path)}}}]} if path else {}
    return {"level": level, "message": {"text": text}, **place}


def _rule(rule: RuleText) -> dict[str, Any]:
    return {
        "id": rule.id,
        "name": rule.name,
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.why or rule.summary},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        **({"helpUri": rule.url} if rule.url else {}),
    }


def _result(finding: Finding, index: dict[str, int], texts: dict[str, str]) -> dict[str, Any]:
    help_text = "".join(f"\n- {advice(suggestion)}" for suggestion in finding.suggestions)
    notes = "".join(f"\n{note}" for note in finding.notes)
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "level": _LEVELS[finding.severity],
        "message": {"text": finding.message + notes + (f"\nSuggestions:{help_text}" if help_text else "")},
        "locations": [_location(finding.location)],
        "partialFingerprints": {"gpulint/v1": finding.fingerprint},
    }
    if finding.rule in index:
        result["ruleIndex"] = index[finding.rule]
    if finding.related:
        result["relatedLocations"] = [
            {**_location(location), **({"message": {"text": location.label}} if location.label else {})}
            for location in finding.related[: MAX_LOCATIONS - 1]
        ]
    fixes = [_fix(item, texts) for item in finding.suggestions if item.edits]
    fixes = [fix for fix in fixes if fix]
    if fixes:
        result["fixes"] = fixes
    return result


def _location(location: Location) -> dict[str, Any]:
    span = location.span
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(location.path)},
            "region": {
                "startLine": span.line,
                "startColumn": span.column,
                "endLine": span.end_line,
                "endColumn": max(span.end_column, 1),
            },
        }
    }


def _fix(suggestion: Suggestion, texts: dict[str, str]) -> dict[str, Any] | None:
    changes: dict[str, list[Edit]] = {}
    for edit in suggestion.edits:
        if edit.path not in texts:
            return None
        changes.setdefault(edit.path, []).append(edit)
    return {
        "description": {"text": suggestion.text},
        "artifactChanges": [
            {
                "artifactLocation": {"uri": _uri(path)},
                "replacements": [
                    {
                        "deletedRegion": {**_point(texts[path], edit.start), **_end(texts[path], edit.end)},
                        "insertedContent": {"text": edit.text},
                    }
                    for edit in edits
                ],
            }
            for path, edits in changes.items()
        ],
    }


def _point(text: str, offset: int) -> dict[str, int]:
    return {"startLine": text.count("\n", 0, offset) + 1, "startColumn": offset - text.rfind("\n", 0, offset)}


def _end(text: str, offset: int) -> dict[str, int]:
    return {"endLine": text.count("\n", 0, offset) + 1, "endColumn": offset - text.rfind("\n", 0, offset)}


def _uri(path: str) -> str:
    return quote(path.replace("\\", "/"), errors="surrogatepass")
