"""Markdown for a comment on a pull request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...settings.severity import SEVERITIES
from ...units import GIB, bytes_text
from ..advice import effect
from ..masking import without_secrets
from ..printable import printable
from ..problems import told
from ..summary import summary

if TYPE_CHECKING:
    from ...finding import Report
    from ..problems import Problem

MAX_LENGTH = 60_000
"""GitHub takes comments of up to 65,536 characters."""

_MARKS = {"error": "❌", "warning": "⚠️", "info": "ℹ️"}
_ACTIVE = re.compile(r"([\\`*_{}\[\]<>()#+!|@~&])")


def render(report: Report, *, once: bool = False) -> str:
    """A heading with the totals, a table of the findings, and for each what lies behind it, folded.

    With `once` a fact of many files is told once, and the gravest come first.
    """
    head = f"### gpulint: {_plain(summary(report, once=once))}"
    if not report.findings:
        return head
    problems = told(report, once=once)
    if once:
        problems.sort(key=lambda problem: -SEVERITIES.index(problem.finding.severity))
    rows = ["| | where | rule | what |", "|---|---|---|---|"]
    rows += [
        f"| {_MARKS[item.severity]} | {_where(problem)} | {item.rule} {item.name} | {_plain(item.message)} |"
        for problem in problems
        for item in [problem.finding]
    ]
    parts = [head, "\n".join(rows), *(_details(problem, report.texts) for problem in problems)]
    return _shortened(parts, len(report.findings))


def _shortened(parts: list[str], findings: int) -> str:
    """As many of the parts as a comment takes."""
    kept: list[str] = []
    for part in parts:
        if sum(map(len, kept)) + len(part) > MAX_LENGTH:
            kept.append(f"_Truncated: {findings} findings do not fit in one comment._")
            break
        kept.append(part)
    return "\n\n".join(kept)


def _where(problem: Problem) -> str:
    place = problem.finding.location
    more = f" and {problem.places - 1} more" if problem.places > 1 else ""
    return _code(f"{place.path}:{place.span.line}") + more


def _details(problem: Problem, texts: dict[str, str]) -> str:
    finding = problem.finding
    span = finding.location.span
    lines = texts.get(finding.location.path, "").split("\n")
    source = lines[span.line - 1].rstrip("\r") if span.line <= len(lines) else ""
    where = f"{_html(finding.location.path)}, line {span.line}"
    head = f"<details><summary>{_html(finding.rule)} {_html(finding.name)} in {where}</summary>"
    before = lines[span.line - 2] if 1 < span.line <= len(lines) else ""
    body = [head, "", *_fenced(printable(without_secrets(source, before)))]
    estimate = finding.estimate
    if estimate is not None:
        parts = [f"{name} {size / GIB:.1f}" for name, size in estimate.components.items() if size >= GIB // 20]
        usable = f" of {bytes_text(estimate.capacity.usable)} usable" if estimate.capacity else ""
        body.append(f"Peak {bytes_text(estimate.needed)}{usable}: {_plain(' | '.join(parts))} (GiB)")
    body += [f"\n{_plain(note)}" for note in (*finding.notes, *problem.also())]
    if finding.suggestions:
        body.append("")
    for suggestion in finding.suggestions:
        after = f": {effect(suggestion)}" if effect(suggestion) else ""
        body.append(f"- {_code(suggestion.text)}{after}")
    return "\n".join([*body, "", "</details>"])


def _fenced(source: str) -> list[str]:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", source)), default=0))
    return [f"{fence}yaml", source, fence, ""]


def _code(text: str) -> str:
    """A code span that its text cannot end; a bar would end the table's cell."""
    text = printable(text).replace("|", "\\|")
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def _plain(text: str) -> str:
    """Text without meaning to Markdown or HTML, and that mentions nobody."""
    return _ACTIVE.sub(r"\\\1", printable(text).replace("`", "'")).replace("\\@", "@\u200b").replace("\n", " ")


def _html(text: str) -> str:
    """Text within HTML tags, where Markdown may still read marks and mentions."""
    from html import escape

    return escape(printable(text).replace("`", "'").replace("@", "@\u200b"))
