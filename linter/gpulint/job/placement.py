"""Whether the ranks of a job find a GPU each, of those that are stated: without a place for each, none starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .job import Job

Limit = Literal["stated", "started", "asked", "visible"]
"""Who says how many GPUs there are: the run or the config, that against the processes which the launcher starts, the
request of the launcher, CUDA_VISIBLE_DEVICES."""

_DEGREES = {"tensor": "tensor parallel", "pipeline": "pipeline parallel", "context": "context parallel"}


class Shortage(NamedTuple):
    """Fewer GPUs, `there`, than the job `needs`; `why` says so in words."""

    by: Limit
    needs: int
    there: int
    why: str


def unplaced(job: Job) -> str:
    """Why some of its ranks have no GPU, in words; "" where each has one, or nobody states how many there are."""
    return next((item.why for item in shortages(job)), "")


def shortages(job: Job) -> Iterator[Shortage]:
    """Every statement of GPUs that leaves ranks of the job without one.

    Of what is filled in when the job starts the least counts, and an assumed number of GPUs is no statement. Ranks are
    those of one replica where GPUs were given to gpulint instead of what the files ask for, or may be on other nodes.
    """
    hardware, replica, all_ranks = job.hardware, _least(job, *_DEGREES), ranks(job)
    started, there = hardware.started_ranks, hardware.gpus
    if started and there and hardware.granted_gpus is None and _is_given(job) and started > there:
        why = f"{_called(job)} starts {started} processes, a GPU each, but the job has {there}"
        yield Shortage("started", started, there, why)
    elif _is_whole_server(job) and there and _is_stated(job, "hardware.gpus") and all_ranks > max(there, replica):
        why = f"data parallel {_least(job, 'data')} x {replica} GPUs needs {all_ranks} GPUs, but the job has {there}"
        yield Shortage("stated", all_ranks, there, why)
    elif hardware.gpus is not None and _is_stated(job, "hardware.gpus") and replica > hardware.gpus:
        degrees = " x ".join(
            f"{name} {_least(job, field)}"
            for field, name in _DEGREES.items()
            if field != "context" or _least(job, field) > 1
        )
        why = f"{degrees} needs {replica} GPUs, but the job has {hardware.gpus}"
        yield Shortage("stated", replica, hardware.gpus, why)
    if hardware.granted_gpus is not None and all_ranks > hardware.granted_gpus:
        has = "it has" if _is_given(job, "hardware.granted_gpus") else "the launcher requests"
        why = f"the job needs {all_ranks} GPUs but {has} {hardware.granted_gpus}"
        yield Shortage("asked", all_ranks, hardware.granted_gpus, why)
    if hardware.visible_gpus is not None and all_ranks > hardware.visible_gpus:
        why = f"the job needs {all_ranks} GPUs but CUDA_VISIBLE_DEVICES shows {hardware.visible_gpus}"
        yield Shortage("visible", all_ranks, hardware.visible_gpus, why)


def devices_listed(variable: object) -> int | None:
    """How many GPUs a variable as CUDA_VISIBLE_DEVICES lists by number; None where it does not, or is not known."""
    devices = [part.strip() for part in variable.split(",")] if isinstance(variable, str) else []
    return len(devices) if devices and all(device.isdigit() for device in devices) else None


def ranks(job: Job) -> int:
    """GPUs that the files start the job on: a server's degrees multiplied, the processes of a training run."""
    if job.kind == "inference":
        return _least(job, *_DEGREES, "data")
    replica = _least(job, *_DEGREES)
    return replica if _is_given(job) or not _is_stated(job, "hardware.gpus") else max(replica, job.world_size)


def _is_given(job: Job, field: str = "hardware.gpus") -> bool:
    """Whether the GPUs are those that gpulint was told of."""
    origin = job.origins.get(field)
    return origin is not None and origin.kind in ("command line", "comment", "settings")


def _is_whole_server(job: Job) -> bool:
    """Whether every data-parallel rank of a server runs on the GPUs of this job."""
    return job.kind == "inference" and not job.parallelism.data_elsewhere


def _called(job: Job) -> str:
    key = job.origins["hardware.started_ranks"].key if "hardware.started_ranks" in job.origins else None
    return f"the launcher ({key})" if key else "the launcher"


def _is_stated(job: Job, path: str) -> bool:
    origin = job.origins.get(path)
    return path not in job.unstated and (origin is None or origin.kind != "assumed")


def _least(job: Job, *degrees: str) -> int:
    """The product of degrees of parallelism; of one that nobody states, the least that it may be."""
    product = 1
    for name in degrees:
        path = f"parallelism.{name}"
        if _is_stated(job, path):
            product *= getattr(job.parallelism, name) or 1
        elif path in job.origins:
            counts = [value for value in job.origins[path].values if isinstance(value, int)]
            product *= min(counts, default=1)
    return product
