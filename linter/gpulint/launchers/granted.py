"""How many GPUs a launch lets its job have, where that is beyond doubt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..job.origin import Origin
from ..job.placement import devices_listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..formats.core.format import Reading
    from .launch import Launch

_ELSEWHERE = (
    "nnodes", "data-parallel-size-local", "data-parallel-start-rank", "data-parallel-rank", "data-parallel-address",
    "data-parallel-hybrid-lb", "data-parallel-external-lb", "data-parallel-backend", "headless", "dist-init-addr",
)  # fmt: skip
"""Options with which an engine runs on the GPUs of other launches, too (vLLM `--nnodes`, SGLang `--nnodes`)."""

_CHOOSES_DEVICES = ("deepspeed.include", "deepspeed.num_gpus")
"""Options of the `deepspeed` launcher, which sets CUDA_VISIBLE_DEVICES of its processes itself."""

VISIBLE = "environment.CUDA_VISIBLE_DEVICES"


def tell_spread(reading: Reading) -> None:
    """Fill `parallelism.data_elsewhere` of a server."""
    reading.job.parallelism.data_elsewhere = reading.job.kind == "inference" and _spread(reading)


def set_granted(launch: Launch, reading: Reading) -> None:
    """Fill the GPUs that the launch gives the job, those that it lets it see, and the processes that it starts."""
    job, resources = reading.job, launch.resources
    origins = resources.origins
    asked = origins.get("gpus_per_node") or Origin("derived", f"hardware of {launch.part}")
    processes = resources.processes if reading.job.kind == "training" else None
    for name, count, origin in (
        (
            "started_ranks",
            -(-processes // (resources.nodes or 1)) if processes else None,
            origins.get("processes", asked),
        ),
        ("granted_gpus", _granted(launch, reading), asked),
        ("visible_gpus", _visible(launch, reading), resources.told.get(VISIBLE, (None, asked))[1]),
    ):
        if count is not None:
            setattr(job.hardware, name, count)
            job.origins[f"hardware.{name}"] = origin


def _granted(launch: Launch, reading: Reading) -> int | None:
    """What is asked for, unless the file offers a choice of hardware or other nodes have a part of the job."""
    told = launch.resources.told
    if "choices" in told or told.get("kind", ("",))[0] == "vllm_recipe":
        return None
    if reading.job.kind == "inference" and _spread(reading):
        return None
    return launch.resources.gpus


def _spread(reading: Reading) -> bool:
    return any(value not in (None, 1, "1", False) for value in _options(reading))


def _options(reading: Reading) -> Iterator[object]:
    for name in _ELSEWHERE:
        entry = reading.config.root.find(name)
        yield entry.value.plain() if entry is not None else None


def _visible(launch: Launch, reading: Reading) -> int | None:
    """The devices that the environment lists by number, of a job on one node whose launcher lists no others."""
    told = launch.resources.told
    if (reading.job.hardware.nodes or 1) > 1 or any(name in told for name in _CHOOSES_DEVICES):
        return None
    return devices_listed(told.get(VISIBLE, (None, None))[0])
