"""A JSON object a line for each finding, for programs that read as it comes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .json_report import finding_object

if TYPE_CHECKING:
    from ...finding import Report


def render(report: Report) -> str:
    """The findings of `gpulint-report/1`, one a line; empty where there is none."""
    return "\n".join(json.dumps(finding_object(finding)) for finding in report.findings)
