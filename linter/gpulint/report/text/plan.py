"""A plan for people: what the job needs now, a table of changes, and what does not apply."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from ...units import bytes_text
from ..printable import printable
from ..style import Style
from .full import UNCACHED, phase_text

if TYPE_CHECKING:
    from ...rules.suggest.plan import Plan, Row

CHANGE, REASON, COST = 44, 36, 48
"""Columns of the change, of why it is enough or not, and of what it costs; longer ones go on in the next line."""

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


def render(file: str, plan: Plan, sort: str, *, colour: bool = False) -> str:
    """The plan of one job."""
    style = Style(colour)
    lines = [style.bold(printable(file)), *_now(plan, style)]
    group = ""
    for row in plan.in_order(sort):
        title = _titles(plan)[row.kind] if sort == "rank" else f"Sorted by {sort}"
        if title != group:
            group = title
            lines += ["", style.bold(title)]
        lines += _row(row, style)
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
    if now.refusal:
        lines.append(f"  {style.error('fails to start')}: {printable(now.refusal)}")
    if gpu is not None:
        verdict = {"fits": "fits", "tight": "may or may not fit", "exceeds": "does not fit", "unknown": "no verdict on"}
        lines.append(
            f"  {style.severity(now.verdict, verdict[now.verdict])} {count} x {gpu.title},"
            f" {bytes_text(gpu.usable)} usable each"
        )
        return lines
    named = ", ".join(plan.fitting) or "no GPU in the catalogue"
    lines += wrap(f"no GPU is set; it fits on {named}", 110, initial_indent="  ", subsequent_indent="    ")
    return [*lines, "  use --gpu NAME to see changes that make it fit on one of them"]


def _reason(row: Row) -> str:
    """Why a row is enough or not; for a server also what is left for its cache, which takes all that is free."""
    cache = row.estimate.kv_cache
    held = f"; KV cache of {cache.tokens:,} tokens" if cache is not None and row.estimate.verdict != "exceeds" else ""
    return row.reason + held


def _row(row: Row, style: Style) -> list[str]:
    edit = "edit" if row.edits else "    " if row.kind == "hardware" else "hand"
    host = row.estimate.host
    cost = row.cost + (f" ({bytes_text(host)} of it)" if host and "host RAM" in row.cost else "")
    columns = [
        wrap(printable(row.change), CHANGE) or [""],
        wrap(printable(_reason(row)), REASON) or [""],
        wrap(printable(cost), COST) or [""],
    ]
    lines = []
    for number in range(max(len(column) for column in columns)):
        change, reason, price = (column[number] if number < len(column) else "" for column in columns)
        needs = f"{bytes_text(row.estimate.needed):>9}" if not number else " " * 9
        verdict = style.severity(row.verdict, f"{row.verdict:<8}") if not number else " " * 8
        written = edit if not number else "    "
        lines.append(
            f"  {change:<{CHANGE}}  {needs}  {verdict}{reason:<{REASON}}  {written}  {style.dim(price)}".rstrip()
        )
    return lines
