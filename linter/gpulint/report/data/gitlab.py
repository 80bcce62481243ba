"""GitLab's Code Quality report (https://docs.gitlab.com/ci/testing/code_quality/)."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from ..printable import json_text

if TYPE_CHECKING:
    from ...finding import Report

_SEVERITIES = {"error": "critical", "warning": "major", "info": "info"}


def render(report: Report) -> str:
    """One object a finding, with a fingerprint that no other has. The description repeats the rule, which GitLab does
    not show."""
    taken: set[str] = set()
    issues = []
    for finding in report.findings:
        mark = finding.fingerprint or finding.rule
        while mark in taken:
            mark = sha256(mark.encode()).hexdigest()[:16]
        taken.add(mark)
        issues.append(
            {
                "description": f"{finding.rule} {finding.name}: {finding.message}",
                "check_name": finding.name,
                "fingerprint": mark,
                "severity": _SEVERITIES[finding.severity],
                "location": {
                    "path": finding.location.path.removeprefix("./"),
                    "lines": {"begin": finding.location.span.line, "end": finding.location.span.end_line},
                },
            }
        )
    return json_text(issues)
