"""From an opened job to its estimate, with the model that its config names, and the verdict in the words of `check`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..estimator.estimate import Estimate
    from ..finding import JobResult
    from ..hardware.gpu import Gpu
    from ..job.job import Job
    from ..launchers.reading import Opened
    from ..models.model import Model


class Estimated(NamedTuple):
    """A job, its model, the GPU it is judged on (None where nobody named one), its estimate and what comes of it."""

    job: Job
    model: Model
    gpu: Gpu | None
    estimate: Estimate
    result: JobResult


def estimated(opened: Opened, changes: Mapping[str, object] | None = None) -> Estimated:
    """The estimate of an opened job, with Job fields changed where `--set` says so.

    Raises NotEstimable with the reason as `check` tells it, that of an unknown model or of an adapter that does not go
    with it included.
    """
    from ..estimator.estimate import NotEstimable
    from ..estimator.estimate_job import estimate_job
    from ..models.lora import NotAdaptable
    from ..models.model import UnknownModel
    from ..models.resolve import resolve
    from ..rules.verdict import not_estimated, of_estimate, without_hardware, without_model

    job, path, part = _changed(opened.reading.job, changes or {}), opened.reading.config.path, opened.part
    unnamed = without_model(job, part, "")
    if job.model is None or unnamed is not None:
        raise NotEstimable(unnamed.unchecked if unnamed is not None else "")
    try:
        model = resolve(job.model, os.path.dirname(os.path.abspath(path)), opened.project.root)
        estimate = estimate_job(job, model, opened.gpu)
    except UnknownModel as error:
        unknown = without_model(job, part, str(error))
        raise NotEstimable(unknown.unchecked if unknown is not None else "") from None
    except (NotEstimable, NotAdaptable) as error:
        raise NotEstimable(not_estimated(part, str(error)).unchecked) from None
    result = without_hardware(job, opened.gpu, part) or of_estimate(job, estimate, part)
    return Estimated(job, model, opened.gpu, estimate, result)


def _changed(job: Job, changes: Mapping[str, object]) -> Job:
    from ..job.origin import Origin

    if not changes:
        return job
    job = job.with_changes(dict(changes))
    job.origins.update(dict.fromkeys(changes, Origin("command line", "--set")))
    job.unstated = [path for path in job.unstated if path not in changes]
    return job
