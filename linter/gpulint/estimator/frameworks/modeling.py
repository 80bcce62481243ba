"""What Transformers' model classes did until some version (`modeling.json`)."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import TYPE_CHECKING, Any

from ...models.arch_spec import arch_spec
from ...models.model import text_config
from ...versions import older

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.arch_spec import ArchSpec
    from ...models.model import Model


def still(habit: str, job: Job, model: Model) -> bool:
    """Whether the job's transformers has a habit of `modeling.json` with the model's class; an unstated one is current.

    Raises KeyError for a habit that is not in the table.
    """
    row = _table()[habit]
    return older(job.versions.get("transformers"), row["later"].get(model.model_type, row["until"]))


def arch_at(job: Job, model: Model) -> ArchSpec:
    """The ArchSpec of the model's class in the job's release: the newest, but for what `modeling.json` says."""
    found = arch_spec(model.model_type, {**model.defaults, **text_config(model.config)}, model.shape.norm)
    native = "native_scores" if "float16" in (job.precision.autocast, job.weights.dtype) else "wide_native_scores"
    scores = "native" if still("native_scores", job, model) or still(native, job, model) else found.scores
    return found._replace(scores=scores, bounded=still("bounded_scores", job, model))


@cache
def _table() -> dict[str, Any]:
    with open(os.path.join(os.path.dirname(__file__), "modeling.json"), encoding="utf-8") as stream:
        table: dict[str, Any] = json.load(stream)
    return table
