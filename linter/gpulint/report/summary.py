"""The line of totals that ends what people read."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from .printable import printable
from .problems import severity_text, told
from .style import Style

if TYPE_CHECKING:
    from ..finding import Report


def summary(report: Report, *, colour: bool = False, once: bool = False) -> str:
    """One line of totals, one about jobs whose memory was not checked, and one about entries of the baseline that are
    no longer needed. With `once` the totals also say how many problems the findings come to."""
    style = Style(colour)
    counts = report.severity_counts()
    found = ", ".join(
        style.severity(severity, severity_text(severity, number)) for severity, number in counts.items() if number
    )
    checked = report.count("checked")
    files = f"{checked} file{'' if checked == 1 else 's'} checked"
    skipped, failed = report.count("skipped"), report.count("error")
    extra = (f", {skipped} skipped" if skipped else "") + (f", {failed} failed" if failed else "")
    extra += f", {report.suppressed} suppressed" if report.suppressed else ""
    extra += f", {report.baselined} in the baseline" if report.baselined else ""
    distinct = len(told(report, once=once))
    if distinct < len(report.findings):
        found = f"{found} in {distinct} distinct problem{'' if distinct == 1 else 's'};"
    else:
        found = f"{found or style.good('No findings')} in"
    lines = [f"{found} {files}{extra}"]
    lines += _not_checked(report)
    if report.gone:
        gone = printable("; ".join(report.gone))
        lines.append(f"in the baseline but no longer found (--write-baseline removes them): {gone}")
    return "\n".join(lines)


MAX_REASONS, MAX_REASON = 3, 120
"""Reasons for jobs whose memory was not checked, the most frequent first, and the characters of one."""


def _not_checked(report: Report) -> list[str]:
    """One line about the jobs whose memory was not checked: why, and what would settle it."""
    jobs = report.not_checked()
    if not jobs:
        return []
    reasons = Counter((job.why, job.settles) for job in jobs)
    told = [
        f"{why}{f' (x {number})' if number < len(jobs) else ''}: {settles}" if settles else why
        for (why, settles), number in reasons.most_common(MAX_REASONS)
    ]
    more = len(reasons) - len(told)
    end = f"; {more} more reason{'s' if more > 1 else ''}, -v lists them" if more > 0 else ""
    return [printable(f"memory of {len(jobs)} job{'s' if len(jobs) > 1 else ''} not checked: {'; '.join(told)}{end}")]
