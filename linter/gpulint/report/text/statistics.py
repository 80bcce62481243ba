"""How often each rule fired."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ..printable import json_text
from ..summary import summary
from ..table import PLAIN, table

if TYPE_CHECKING:
    from ...finding import Report
    from ..style import Style


def render(report: Report, style: Style = PLAIN, *, once: bool = False) -> str:
    """A line a rule, the most frequent first, then the totals."""
    rows = [(str(count), severity, rule, name, str(files)) for count, severity, rule, name, files in _rows(report)]
    lines = [table(("FINDINGS", "SEVERITY", "RULE", "NAME", "FILES"), rows, style)] if rows else []
    return "\n".join([*lines, summary(report, once=once)])


def as_json(report: Report) -> str:
    """The same for programs."""
    names = ("findings", "severity", "rule", "name", "files")
    return json_text([dict(zip(names, row, strict=True)) for row in _rows(report)])


def _rows(report: Report) -> list[tuple[int, str, str, str, int]]:
    counts = Counter((finding.severity, finding.rule, finding.name) for finding in report.findings)
    files = Counter(
        rule for rule, _ in {(finding.rule, finding.location.path) for finding in report.findings}
    )  # fmt: skip
    return [(count, severity, rule, name, files[rule]) for (severity, rule, name), count in counts.most_common()]
