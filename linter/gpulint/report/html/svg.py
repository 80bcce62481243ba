"""Estimates as a picture for a README or a ticket: a stacked bar a phase against the card."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...estimator.estimate import COMPONENTS
from ...units import bytes_text
from ..verdict import word
from .palette import colours, legend
from .text import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...estimator.estimate import Estimate
    from ...finding import JobResult

WIDTH, LEFT, RIGHT, ROW, HEAD, FOOT = 760, 130, 90, 26, 50, 40
"""Pixels: the picture, left and right of the bars, a row, above and below the rows of one estimate."""

_FONT = 'font-family="system-ui, sans-serif" font-size="13"'


def render(estimates: Sequence[tuple[str, Estimate, JobResult]]) -> str:
    """Files, their estimates and what comes of the jobs as one SVG, readable on light and dark ground."""
    top = 0
    parts = []
    for file, estimate, result in estimates:
        parts.append(f'<g transform="translate(0 {top})">{_one(file, estimate, result)}</g>')
        top += HEAD + ROW * len(estimate.phases) + FOOT
    title = "Peak memory per GPU: " + ", ".join(file for file, *_ in estimates)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}" '
        f'role="img" aria-label="{text(title)}">\n<rect width="{WIDTH}" height="{top}" fill="#ffffff" rx="6"/>\n'
        + "\n".join(parts)
        + "\n</svg>"
    )


def _one(file: str, estimate: Estimate, result: JobResult) -> str:
    usable = estimate.capacity.usable if estimate.capacity else 0
    totals = [phase.allocated + estimate.runtime for phase in estimate.phases]
    scale = (WIDTH - LEFT - RIGHT) / (1.02 * max(usable, *totals, 1))
    tiers = estimate.per_gpu
    verdict = word(estimate, result)
    head = f"{verdict}: {bytes_text(tiers.process)} ({bytes_text(tiers.low)} to {bytes_text(tiers.high)})"
    on = f" on {estimate.capacity.gpu}, {bytes_text(usable)} usable" if estimate.capacity else ""
    lines = [
        f'<text x="12" y="20" {_FONT} font-weight="600" fill="#1d2126">{text(file)}</text>',
        f'<text x="12" y="38" {_FONT} fill="#5d6670">{text(head + on)}</text>',
    ]
    for row, phase in enumerate(estimate.phases):
        lines += _row(phase.name, {**phase.components, "runtime": estimate.runtime}, HEAD + ROW * row, scale)
    bottom = HEAD + ROW * len(estimate.phases)
    if usable:
        x = LEFT + usable * scale
        lines.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{HEAD - 4}" y2="{bottom}" stroke="#1d2126" stroke-dasharray="4 3"/>'
        )
    return "\n".join([*lines, _legend(estimate, bottom + 18)])


def _row(name: str, parts: dict[str, int], y: int, scale: float) -> list[str]:
    lines = [f'<text x="12" y="{y + 14}" {_FONT} fill="#1d2126">{text(name.replace("_", " "))}</text>']
    x, own = float(LEFT), colours("light")
    for component in COMPONENTS:
        width = parts.get(component, 0) * scale
        if width > 0:
            label = f"{component.replace('_', ' ')} {bytes_text(parts[component])}"
            lines.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 8}" fill="{own[component]}">'
                f"<title>{label}</title></rect>"
            )
            x += width
    total = bytes_text(sum(parts.values()))
    lines.append(f'<text x="{WIDTH - 12}" y="{y + 14}" {_FONT} text-anchor="end" fill="#1d2126">{total}</text>')
    return lines


def _legend(estimate: Estimate, y: int) -> str:
    shown = legend(estimate)
    step, own = (WIDTH - 24) / len(shown), colours("light")
    return "".join(
        f'<rect x="{12 + step * place:.1f}" y="{y - 10}" width="10" height="10" fill="{own[name]}"/>'
        f'<text x="{26 + step * place:.1f}" y="{y}" {_FONT} fill="#5d6670">{name.replace("_", " ")}</text>'
        for place, name in enumerate(shown)
    )
