"""Findings within the text of their file, as HTML."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from ..advice import effect
from ..masking import without_secrets
from .text import text

if TYPE_CHECKING:
    from ...finding import Finding, Report

AROUND = 3
"""Lines shown above and below one that a finding stands on."""


def findings_of(report: Report) -> dict[str, str]:
    """A section a file: its findings with the lines that they stand on."""
    sections = {}
    by_path = sorted(report.findings, key=lambda finding: finding.location.path)
    for path, group in groupby(by_path, key=lambda finding: finding.location.path):
        found = sorted(group, key=lambda finding: finding.location.span[:2])
        lines = report.texts.get(path, "").split("\n")
        body = "\n".join(_finding(finding, lines) for finding in found)
        sections[path] = f"<section><h2>Findings in {text(path)}</h2>\n{body}\n</section>"
    return sections


def _finding(finding: Finding, lines: list[str]) -> str:
    span = finding.location.span
    advice = "".join(
        f"<li><code>{text(item.text)}</code>" + (f" &rarr; {effect(item)}" if effect(item) else "") + "</li>"
        for item in finding.suggestions
    )
    notes = "".join(f'<p class="faint">{text(note)}</p>' for note in finding.notes)
    return "\n".join(
        [
            f'<div class="finding {finding.severity}">',
            f'<p class="title">{finding.severity} {text(finding.rule)} {text(finding.name)}, line {span.line}</p>',
            f"<p>{text(finding.message)}</p>{notes}",
            _lines(finding, lines),
            *([f"<ul>{advice}</ul>"] if advice else []),
            "</div>",
        ]
    )


def _lines(finding: Finding, lines: list[str]) -> str:
    """The lines of the finding and of what relates to it in the same file, with some around."""
    path = finding.location.path
    hits = {finding.location.span.line, *(item.span.line for item in finding.related if item.path == path)}
    near = sorted(
        {line for hit in hits for line in range(hit - AROUND, hit + AROUND + 1) if 1 <= line <= len(lines)}
    )  # fmt: skip
    rows = []
    before = near[0] if near else 0
    for line in near:
        if line > before + 1:
            rows.append('<span class="gap">&hellip;</span>')
        source = text(without_secrets(lines[line - 1].rstrip("\r"), lines[line - 2] if line > 1 else ""))
        kind = f' class="hit {finding.severity}"' if line in hits else ""
        rows.append(f'<span{kind}><span class="number">{line}</span>{source}</span>')
        before = line
    return f"<pre>{''.join(rows)}</pre>" if rows else ""
