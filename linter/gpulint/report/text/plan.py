"""A plan for people: what the job needs now, a table of changes, and what does not apply."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from ...units import bytes_text
from ..printable import printable
from ..table import PLAIN, wrapped
from ..verdict import word
from .full import UNCACHED, phase_text

if TYPE_CHECKING:
    from ...rules.suggest.plan import Plan, Row
    from ..style import Style

CHANGE, NEEDS, VERDICT, REASON, HAND, COST = 44, 9, 7, 36, 4, 48
"""Columns of the change, what it needs, the verdict, why, whether gpulint can write it, and what it costs the run."""

MARGINS = 12
"""Blanks before the table and between its columns."""

NARROWEST = 80
"""Columns below which a terminal breaks the lines of the table."""

_TITLES = {
    "room": "Headroom: larger settings that still fit",
    "change": "Ways to save memory (least invasive first)",
    "combination": "Combinations",
    "hardware": "Other hardware (config unchanged)",
}


def _titles(plan: Plan) -> dict[str, str]:
    """The titles of the groups; a server's free memory goes to its cache, so there changes move memory, not save it."""
    if plan.facts.job.kind == "training":
        return _TITLES
    return _TITLES | {"change": "Changes to weights, batch and KV cache (least invasive first)"}


def render(file: str, plan: Plan, sort: str, style: Style = PLAIN) -> str:
    """The plan of one job."""
    widths = _widths(style.width)
    lines = [style.bold(printable(file)), *_now(plan, style)]
    group = ""
    for row in plan.in_order(sort):
        title = _titles(plan)[row.kind] if sort == "rank" else f"Sorted by {sort}"
        if title != group:
            group = title
            lines += ["", style.bold(title)]
        lines += wrapped([_row(row, style)], widths, sum(widths) + MARGINS, indent=2)
    if any(not row.edits and row.kind != "hardware" for row in plan.rows):
        lines += ["", "  hand: gpulint cannot write this change into the file"]
    if plan.absent:
        lines += ["", style.bold("Not applicable")]
        width = max(len(item.recipe) for item in plan.absent)
        lines += [f"  {item.recipe:<{width}}  {printable(item.reason)}" for item in plan.absent]
    return "\n".join(lines)


def _now(plan: Plan, style: Style) -> list[str]:
    now, gpu = plan.now, plan.facts.gpu
    count = plan.facts.job.world_size
    each = " on each" if count > 1 else ""
    job = plan.facts.job
    if job.kind == "training" and not (job.micro_batch_size and job.sequence_length):
        peak = f"weights and optimizer states alone need {bytes_text(now.needed)}{each}; batch or length is not set"
    else:
        span = f"{bytes_text(now.per_gpu.low)} to {bytes_text(now.per_gpu.high)}"
        peak = f"needs {bytes_text(now.needed)} ({span}){each}; peak: {phase_text(now.peak_phase)}"
    lines = [f"  {printable(now.model_id)}: {peak}"]
    if now.kv_cache is not None:
        cache = now.kv_cache
        requests = f"{cache.max_concurrency:.1f} requests of full length"
        lines.append(f"  the KV cache holds {cache.tokens:,} tokens, {requests}")
    elif now.uncached:
        lines.append(f"  no KV cache: {UNCACHED}")
    if gpu is not None:
        verdict = style.severity(now.verdict, word(now, plan.result))
        on = "" if plan.result.verdict in ("fits", "tight", "exceeds") else " on"
        lines.append(f"  {verdict}{on} {count} x {gpu.title}, {bytes_text(gpu.usable)} usable each")
    if plan.result.unchecked:
        lines += wrap(printable(plan.result.unchecked), 110, initial_indent="  ", subsequent_indent="    ")
    elif now.stops:
        lines.append(f"  {style.error('fails to start')}: {printable(now.stops)}")
    if gpu is not None:
        return lines
    named = ", ".join(plan.fitting) or "no GPU in the catalogue"
    lines += wrap(f"it fits on {named}", 110, initial_indent="  ", subsequent_indent="    ")
    return [*lines, "  use --gpu NAME to see changes that make it fit on one of them"]


def _reason(row: Row) -> str:
    """Why a row is enough or not; for a server also what is left for its cache, which takes all that is free."""
    cache = row.estimate.kv_cache
    held = f"; KV cache of {cache.tokens:,} tokens" if cache is not None and row.estimate.verdict != "exceeds" else ""
    return row.reason + held


def _widths(room: int) -> tuple[int, ...]:
    """The columns as wide as above, or so that a terminal of `room` columns holds the table, 0 for any."""
    fixed = NEEDS + VERDICT + HAND
    share = (max(room, NARROWEST) - MARGINS - fixed) / (CHANGE + REASON + COST) if room else 1
    change, reason, cost = (int(column * min(share, 1)) for column in (CHANGE, REASON, COST))
    return change, NEEDS, VERDICT, reason, HAND, cost


def _row(row: Row, style: Style) -> tuple[str, ...]:
    host = row.estimate.host
    cost = row.cost + (f" ({bytes_text(host)} of it)" if host and "host RAM" in row.cost else "")
    return (
        printable(row.change),
        f"{bytes_text(row.estimate.needed):>{NEEDS}}",
        style.severity(row.verdict, row.verdict),
        printable(_reason(row)),
        "edit" if row.edits else "" if row.kind == "hardware" else "hand",
        style.dim(printable(cost)),
    )
