"""Plans as one JSON object, `gpulint-plan/1`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ...declared import plain
from ..masking import masked
from ..printable import json_text
from . import shape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...estimator.estimate import Verdict
    from ...finding import Applicability
    from ...rules.suggest.plan import Plan, Row


def render(plans: Iterable[tuple[str, Plan]], sort: str) -> str:
    """(file, plan) pairs as JSON text; `schemas/plan.json` describes it."""
    found = tuple(_plan(file, plan, sort) for file, plan in plans)
    return json_text(plain(shape.Plans(shape.PLAN, found)))


def _plan(file: str, plan: Plan, sort: str) -> shape.Plan:
    gpu = plan.facts.gpu
    return shape.Plan(
        file=file,
        kind=cast("shape.Kind", plan.now.kind),
        model=masked(plan.now.model_id),
        gpus=plan.facts.job.world_size,
        gpu=gpu and gpu.name,
        usable=gpu and gpu.usable,
        now=shape.Now(
            plan.now.per_gpu, plan.now.verdict, plan.now.stops, plan.result.why or None, plan.result.settles or None
        ),
        rows=tuple(map(_row, plan.in_order(sort))),
        absent=tuple(shape.Absent(item.recipe, item.reason) for item in plan.absent),
        fits_on=tuple(plan.fitting),
    )


def _row(row: Row) -> shape.Row:
    return shape.Row(
        kind=cast("shape.RowKind", row.kind),
        text=row.change,
        recipe=row.recipe or None,
        per_gpu=row.estimate.per_gpu,
        host=row.estimate.host,
        verdict=cast("Verdict", row.verdict),
        reason=row.reason,
        cost=row.cost or None,
        applicability=cast("Applicability | None", row.fix),
        edits=row.edits,
    )
