"""Two estimates side by side, for people and as JSON."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from ...estimator.estimate import COMPONENTS
from ...units import MIB, bytes_text
from ...words import word
from ..data.json_estimate import as_object
from ..printable import json_text, printable
from ..table import PLAIN, table
from ..verdict import told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...run.comparison import Difference
    from ...run.estimated import Estimated
    from ..style import Style

_SCHEMA = "gpulint-comparison/1"

Named = tuple[str, "Estimated"]
"""What people call a job, and its estimate."""


def render(one: Named, two: Named, found: Sequence[Difference], style: Style = PLAIN) -> str:
    """Components, tiers and verdict of both, then the settings that differ."""
    before, after = one[1].estimate, two[1].estimate
    rows = [
        (name.replace("_", " "), *_sizes(before.components.get(name, 0), after.components.get(name, 0)))
        for name in COMPONENTS
        if before.components.get(name, 0) or after.components.get(name, 0)
    ]
    rows += [
        (tier, *_sizes(getattr(before.per_gpu, tier), getattr(after.per_gpu, tier)))
        for tier in ("allocated", "reserved", "process")
    ]
    rows.append(("peak", before.peak_phase.replace("_", " "), after.peak_phase.replace("_", " "), ""))
    rows.append(("verdict", one[1].result.verdict, two[1].result.verdict, ""))
    lines = [
        style.bold(f"{printable(one[0])} -> {printable(two[0])}"),
        table(("", "BEFORE", "AFTER", "DIFFERENCE"), rows, style),
        "",
    ]
    lines += _reasons(one, two)
    if not found:
        return "\n".join([*lines, "no setting that affects memory differs"])
    changed = [(item.path, word(item.before), word(item.after), _alone(item), item.origin) for item in found]
    return "\n".join([*lines, table(("SETTING", "BEFORE", "AFTER", "ALONE", "FROM"), changed, style)])


def _reasons(one: Named, two: Named) -> list[str]:
    """Why a job was not checked or does not start, where the verdict alone does not say it."""
    sides = {name: told(side.estimate, side.result) for name, side in (one, two)}
    said = [
        f"{printable(name)}: {sides[name]}"
        for name, side in dict((one, two)).items()
        if side.result.unchecked or side.estimate.stops
    ]
    return [*said, ""] if said else []


def as_json(one: Named, two: Named, found: Sequence[Difference]) -> str:
    """The same for programs."""
    sides = {
        name: as_object(file, side.estimate, side.result) for name, (file, side) in (("before", one), ("after", two))
    }
    changes = [
        {
            "field": item.path,
            "before": _plain(item.before),
            "after": _plain(item.after),
            "from": item.origin,
            "alone": item.alone,
        }
        for item in found
    ]
    return json_text({"schema": _SCHEMA, **sides, "differences": changes})


def _sizes(before: int, after: int) -> tuple[str, str, str]:
    return bytes_text(before), bytes_text(after), _signed(after - before)


def _signed(size: int) -> str:
    return f"{size / abs(size):+.0f}"[0] + bytes_text(abs(size)) if abs(size) >= MIB else ""


def _alone(item: Difference) -> str:
    return "?" if item.alone is None else _signed(item.alone) or "none"


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    return value if isinstance(value, str | int | float | bool | list | dict | None) else str(value)
