"""A job as its program runs it, where the config leaves to the program what the estimate has to know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .frameworks.frameworks import without_unknown
from .states.adapter_parameters import with_adapter
from .unmodeled import with_required

if TYPE_CHECKING:
    from ..job.job import Job
    from ..models.model import Model


def as_run(job: Job, model: Model) -> Job:
    """With its method's default adapter and the packages it cannot lack, without a framework that nobody knows."""
    return with_required(with_adapter(without_unknown(job)), model)
