"""A JSON object a line for each finding, for programs that read as it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..printable import json_text
from .json_report import finding_object

if TYPE_CHECKING:
    from ...finding import Report


def render(report: Report) -> str:
    """The findings of `gpulint-report/1`, one a line; empty where there is none."""
    return "\n".join(json_text(finding_object(finding), indent=None) for finding in report.findings)
