"""Servers that one file starts on the same GPUs at the same time, and the memory that they ask for together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..job.origin import Origin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..formats.core.format import Reading
    from .launch import Launch

_LISTS = ("devices", "environment.CUDA_VISIBLE_DEVICES", "environment.NVIDIA_VISIBLE_DEVICES")

VLLM_SHARE = 0.9
"""vLLM's default before it rose to 0.92 (vllm/config/cache.py); that of a release that is not known."""


def tell_shares(jobs: Sequence[tuple[Launch, Reading]]) -> None:
    """Note for each server `gpu.neighbours`, those beside it on one GPU, and `gpu.shares`, the part of its memory that
    they and it take together.

    A server of which it is not known what runs beside it, which GPUs it has or what share it takes takes part in
    nothing; two with the same port on the host are alternatives.
    """
    taken = [(launch, reading, _devices(launch, reading), _share(reading)) for launch, reading in jobs]
    for at, (launch, reading, devices, share) in enumerate(taken):
        beside = [
            (other[0].part, other[3])
            for number, other in enumerate(taken)
            if number != at
            and devices & other[2]
            and share
            and other[3]
            and launch.resources.beside is not None
            and launch.resources.beside is other[0].resources.beside
            and not _ports(launch) & _ports(other[0])
        ]
        if beside and share and reading.launch is not None:
            origin = Origin("derived", f"servers beside {launch.part}")
            reading.launch["gpu.shares"] = (round(share + sum(part for _, part in beside), 4), origin)
            reading.launch["gpu.neighbours"] = (", ".join(name for name, _ in beside), origin)


def _ports(launch: Launch) -> frozenset[str]:
    """The ports of the host that a container takes."""
    published, _ = launch.resources.told.get("container.ports", ("", None))
    return frozenset(str(published).split(",")) - {""}


def _share(reading: Reading) -> float:
    """The share of a GPU's memory that a server takes, 0 where it takes what it needs or nobody knows."""
    serving = reading.job.inference
    if reading.job.kind != "inference" or serving is None or serving.kv_cache_memory_bytes is not None:
        return 0.0
    return serving.gpu_memory_utilization or (VLLM_SHARE if serving.engine == "vllm" else 0.0)


def _devices(launch: Launch, reading: Reading) -> frozenset[str]:
    """The numbers of the GPUs that a job uses: the first of those it sees, as many as it has ranks."""
    ranks = reading.job.model_shards * (reading.job.parallelism.data or 1)
    told = launch.resources.told
    listed = next((told[name][0] for name in _LISTS if name in told), None)
    if listed is None:
        return frozenset(str(number) for number in range(ranks))
    names = [name.strip() for name in str(listed).split(",")]
    return frozenset(names[:ranks]) if all(name.isdigit() for name in names) else frozenset()
