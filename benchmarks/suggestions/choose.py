"""The jobs: configs that hold one job each, with the largest GPU of the catalogue that the job does not fit."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from gpulint.estimator.estimate import NotEstimable
from gpulint.estimator.estimate_job import estimate_job
from gpulint.formats.core.format import NoJobError
from gpulint.hardware.catalogue import gpus
from gpulint.launchers.reading import UnrecognisedError, open_jobs, recognise_file
from gpulint.models.lora import NotAdaptable
from gpulint.models.model import UnknownModel
from gpulint.models.resolve import resolve
from gpulint.settings.settings import Settings
from gpulint.source.document import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpulint.hardware.gpu import Gpu
    from gpulint.job.job import Job
    from gpulint.models.model import Model


class Chosen(NamedTuple):
    """A config below the corpus, its format, the kind of its job, and a GPU that is too small for it."""

    path: str
    format: str
    kind: str
    gpu: str


def candidate(root: str, path: str) -> Chosen | None:
    """The file with the largest GPU that its one job does not fit; None where it has none, or several jobs."""
    file = os.path.join(root, path)
    try:
        jobs = open_jobs(recognise_file(file), Settings(root=os.path.dirname(file)))
        if len(jobs.opened) != 1:
            return None
        opened = jobs.opened[0]
        job = opened.reading.job
        if job.model is None:
            return None
        model = resolve(job.model, os.path.dirname(file), opened.project.root)
        gpu = _too_small(job, model)
    except (SourceError, UnrecognisedError, NoJobError, UnknownModel, NotEstimable, NotAdaptable):
        return None
    return Chosen(path, opened.reading.format, job.kind, gpu.name) if gpu is not None else None


def _too_small(job: Job, model: Model) -> Gpu | None:
    """The largest NVIDIA card that the job exceeds, among equals the first by name."""
    cards = sorted((gpu for gpu in gpus() if gpu.vendor.lower() == "nvidia"), key=lambda gpu: (-gpu.usable, gpu.name))
    if job.kind == "training":
        least = estimate_job(job, model, None, replay=False).per_gpu.process
        cards = [gpu for gpu in cards if gpu.usable < least]
    for gpu in cards:
        if estimate_job(job, model, gpu, replay=False).verdict == "exceeds":
            return gpu
    return None


def spread(found: Iterable[Chosen], number: int) -> Iterator[Chosen]:
    """`number` of them, one of each format in turn, evenly from the first to the last of a format."""
    formats: dict[str, list[Chosen]] = {}
    for item in found:
        formats.setdefault(item.format, []).append(item)
    shares = dict.fromkeys(sorted(formats), 0)
    left = number
    while left and any(shares[name] < len(formats[name]) for name in shares):
        for name in shares:
            if left and shares[name] < len(formats[name]):
                shares[name] += 1
                left -= 1
    for name, share in shares.items():
        for index in range(share):
            yield formats[name][index * len(formats[name]) // share]
