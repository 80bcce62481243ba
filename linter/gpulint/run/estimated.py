"""From an opened job to its estimate, with the model that its config names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..estimator.estimate import Estimate
    from ..hardware.gpu import Gpu
    from ..job.job import Job
    from ..launchers.reading import Opened
    from ..models.model import Model


class Estimated(NamedTuple):
    """A job, its model, the GPU it is judged on (None where nobody named one) and its estimate."""

    job: Job
    model: Model
    gpu: Gpu | None
    estimate: Estimate


def estimated(opened: Opened, changes: Mapping[str, object] | None = None) -> Estimated:
    """The estimate of an opened job, with Job fields changed where `--set` says so.

    Raises NotEstimable with the reason, for people, that of an unknown model or of an adapter that does not go with it
    included.
    """
    from ..estimator.estimate import NotEstimable
    from ..estimator.estimate_job import estimate_job
    from ..job.origin import Origin
    from ..models.lora import NotAdaptable
    from ..models.model import UnknownModel
    from ..models.resolve import resolve

    job, path = opened.reading.job, opened.reading.config.path
    if changes:
        job = job.with_changes(dict(changes))
        job.origins.update(dict.fromkeys(changes, Origin("command line", "--set")))
        job.unstated = [path for path in job.unstated if path not in changes]
    if job.model is None:
        raise NotEstimable("it sets no model; estimate the config that uses it")
    try:
        model = resolve(job.model, os.path.dirname(os.path.abspath(path)), opened.project.root)
        return Estimated(job, model, opened.gpu, estimate_job(job, model, opened.gpu))
    except (UnknownModel, NotAdaptable) as error:
        raise NotEstimable(str(error)) from None
