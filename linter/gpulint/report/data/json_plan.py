"""Plans as one JSON object, `gpulint-plan/1`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .json_estimate import per_gpu

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...rules.suggest.plan import Plan, Row

SCHEMA = "gpulint-plan/1"


def render(plans: Iterable[tuple[str, Plan]], sort: str) -> str:
    """(file, plan) pairs as JSON text; `schemas/plan.json` describes it."""
    found = [as_object(file, plan, sort) for file, plan in plans]
    return json.dumps({"schema": SCHEMA, "plans": found}, indent=2)


def as_object(file: str, plan: Plan, sort: str) -> dict[str, Any]:
    """One plan as plain data; integers are bytes on the fullest GPU."""
    gpu = plan.facts.gpu
    return {
        "file": file,
        "kind": plan.now.kind,
        "model": plan.now.model_id,
        "gpus": plan.facts.job.world_size,
        "gpu": gpu and gpu.name,
        "usable": gpu and gpu.usable,
        "now": {"per_gpu": per_gpu(plan.now), "verdict": plan.now.verdict},
        "rows": [_row(row) for row in plan.in_order(sort)],
        "absent": [item._asdict() for item in plan.absent],
        "fits_on": list(plan.fitting),
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "kind": row.kind,
        "change": row.change,
        "recipe": row.recipe or None,
        "per_gpu": per_gpu(row.estimate),
        "host": row.estimate.host,
        "verdict": row.verdict,
        "reason": row.reason,
        "cost": row.cost or None,
        "applicability": row.fix,
        "edits": [{"path": edit.path, "start": edit.start, "end": edit.end, "text": edit.text} for edit in row.edits],
    }
