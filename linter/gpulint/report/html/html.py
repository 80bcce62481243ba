"""A page of its own: each job with its memory against the card, what else it could be, and the findings in their text.

It loads nothing and sends nothing; without scripts only the sliders are missing.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

from ..summary import summary
from ..verdict import NOT_CHECKED, word
from .findings import findings_of
from .memory import memory, what_if
from .palette import style_sheet
from .text import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...finding import Report
    from ...run.overview import Card

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def render(report: Report, cards: Sequence[Card], version: str) -> str:
    """The page as text."""
    findings = findings_of(report)
    sections: list[str] = []
    for number, card in enumerate(cards):
        sections.append(_job(card, number))
        if card is not cards[-1] and cards[number + 1].path == card.path:
            continue
        sections += [findings.pop(card.path)] if card.path in findings else []
    sections += [*findings.values(), *_unread(report)]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="color-scheme" content="light dark">',
            "<title>gpulint report</title>",
            f"<style>\n{style_sheet()}{_file('page.css')}</style></head><body><main>",
            "<h1>gpulint report</h1>",
            f'<p class="faint">{text(summary(report))} &middot; gpulint {text(version)}</p>',
            *sections,
            f"<script>\n{_file('page.js')}</script></main></body></html>",
        ]
    )


def _job(card: Card, number: int) -> str:
    estimate = card.estimate
    verdict = estimate.verdict if estimate is not None else "unknown"
    said = word(estimate, card.result) if estimate is not None else NOT_CHECKED
    where = f", {text(card.part)}" if card.part else ""
    parts = [
        f'<section id="job-{number}"><div class="head"><h2>{text(card.path)}{where}</h2>',
        f'<span class="pill {verdict}">{said}</span></div>',
    ]
    if card.result is not None and card.result.unchecked:
        parts.append(f"<p>{text(card.result.unchecked)}</p>")
    if estimate is None:
        parts.append(f'<p class="faint">{text(card.kind)}, read as {text(card.format)}: {text(card.reason)}</p>')
    else:
        capacity = estimate.capacity
        on = f" on {text(capacity.gpu)}" if capacity else ""
        parts.append(
            f'<p class="faint">{text(card.kind)} of {text(estimate.model_id)}, {estimate.parameters:,} parameters, '
            f"read as {text(card.format)}{on}</p>"
        )
        parts.append(memory(estimate))
        if card.grid is not None and card.grid.axes:
            parts.append(what_if(card.grid, number))
    parts.append(_understood(card))
    return "\n".join([*parts, "</section>"])


def _understood(card: Card) -> str:
    rows = "\n".join(
        f"<tr><td><code>{text(item.path)}</code></td><td>{text(item.value)}</td><td>{text(item.origin)}</td></tr>"
        for item in card.fields
    )
    return (
        "<details><summary>How gpulint reads the job</summary>"
        '<div class="scroll"><table><thead><tr><th>field</th><th>value</th><th>from</th></tr></thead>'
        f"<tbody>\n{rows}\n</tbody></table></div></details>"
    )


def _unread(report: Report) -> list[str]:
    rows = [
        f"<li>{text(file.path)}{f':{file.line}' if file.line else ''}: {text(file.reason)}</li>"
        for file in report.files
        if file.status == "error"
    ]
    return [f"<section><h2>Could not be read</h2><ul>{''.join(rows)}</ul></section>"] if rows else []


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
