"""How many GPUs a launch lets its job have, where that is beyond doubt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..job.origin import Origin
from ..job.placement import devices_listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..formats.core.format import Reading
    from .launch import Launch

_ELSEWHERE = ("nnodes", "data-parallel-size-local")
"""Options with which an engine runs on the GPUs of other launches, too (vLLM `--nnodes`, SGLang `--nnodes`)."""

_CHOOSES_DEVICES = ("deepspeed.include", "deepspeed.num_gpus")
"""Options of the `deepspeed` launcher, which sets CUDA_VISIBLE_DEVICES of its processes itself."""

VISIBLE = "environment.CUDA_VISIBLE_DEVICES"


def set_granted(launch: Launch, reading: Reading) -> None:
    """Fill `hardware.granted_gpus` and `hardware.visible_gpus` of the job."""
    job, resources = reading.job, launch.resources
    origins = resources.origins
    asked = origins.get("gpus_per_node") or Origin("derived", f"hardware of {launch.part}")
    for name, count, origin in (
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
    return any(value not in (None, 1, "1") for value in _options(reading))


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
