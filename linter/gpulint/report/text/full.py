"""Findings for people: a frame, a caret, the memory at the peak, and suggestions that were checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...units import GIB, bytes_text
from ..printable import printable
from ..problems import first_screen, left_out, told
from ..style import Style
from ..summary import summary
from .frame import frame

if TYPE_CHECKING:
    from ...estimator.estimate import Estimate
    from ...finding import Finding, Report, Suggestion
    from ..problems import Problem

_PHASES = {
    "load": "model load",
    "forward": "forward pass",
    "loss": "loss",
    "backward": "backward pass",
    "gather": "outputs gathered on the first GPU",
    "optimizer_step": "optimizer step",
    "save": "checkpoint save",
    "compile": "compilation",
    "profile_run": "profile run",
    "prefill": "prefill",
    "decode": "decode",
    "serve": "serving",
}

UNCACHED = "an encoder processes a request in one pass and caches nothing"
"""Why an engine that serves a pooling model has no KV cache."""


def render(
    report: Report,
    *,
    colour: bool = False,
    totals: bool = True,
    width: int = 0,
    links: bool = False,
    once: bool = False,
    most: int | None = None,
) -> str:
    """The report as text; `totals` ends it with a line of them; messages break at `width`, 0 for never. With `once`
    every fact is told once, with `most` about as many lines are.
    """
    style = Style(colour, width, links)
    shown, left = first_screen(told(report, once=once), lambda problem: _problem(problem, report, style), most)
    blocks = ["\n".join(lines) for _, lines in shown]
    end = [*left_out(left), *([summary(report, colour=colour, once=once)] if totals else [])]
    return "\n\n".join([*blocks, *(["\n".join(end)] if end else [])])


def phase_text(phase: str) -> str:
    """A phase for people: "optimizer step"."""
    return _PHASES.get(phase, phase.replace("_", " "))


def _problem(problem: Problem, report: Report, style: Style) -> list[str]:
    finding = problem.finding
    span = finding.location.span
    path = printable(finding.location.path)
    head = (
        f"{style.place(f'{path}:{span.line}:{span.column}', finding.location.path)}: "
        f"{style.severity(finding.severity, f'{finding.severity} {finding.rule}')} {finding.name}"
    )
    text = report.texts.get(finding.location.path, "")
    related = [place for place in finding.related if place.path == finding.location.path]
    lines = [head, *frame(text, [finding.location, *related], style, finding.message, finding.severity)]
    elsewhere = [
        f"  = see {printable(place.path)}:{place.span.line}:{place.span.column} {printable(place.label)}".rstrip()
        for place in finding.related
        if place.path != finding.location.path
    ]
    if finding.estimate is not None:
        lines += _peak(finding.estimate)
    lines += [f"  = {printable(note)}" for note in finding.notes]
    lines += elsewhere
    lines += [f"  = {printable(place)}" for place in problem.also()]
    lines += _suggestions(finding, style)
    return lines


def _peak(estimate: Estimate) -> list[str]:
    capacity = f" of {bytes_text(estimate.capacity.usable)} usable" if estimate.capacity else ""
    split = " | ".join(
        f"{name.replace('_', ' ')} {size / GIB:.1f}" for name, size in estimate.components.items() if size >= 0.05 * GIB
    )
    return [
        f"  = peak {bytes_text(estimate.needed)}{capacity} ({phase_text(estimate.peak_phase)})",
        f"    {split or 'less than 0.1'} (GiB)",
    ]


def _suggestions(finding: Finding, style: Style) -> list[str]:
    if not finding.suggestions:
        return []
    measured = [suggestion for suggestion in finding.suggestions if suggestion.per_gpu is not None]
    lines = ["  = suggestions (memory re-estimated):" if measured else "  = help:"]
    width = max(len(printable(suggestion.text)) for suggestion in finding.suggestions)
    lines.extend(f"    {_suggestion(suggestion, min(width, 64), style)}" for suggestion in finding.suggestions)
    return lines


def _suggestion(suggestion: Suggestion, width: int, style: Style) -> str:
    text = printable(suggestion.text)
    if suggestion.per_gpu is None:
        return text
    cost = style.dim(f"  ({printable(suggestion.cost)})") if suggestion.cost else ""
    return f"{text:<{width}}  -> {style.good(f'{bytes_text(suggestion.per_gpu):>9}')}{cost}"
