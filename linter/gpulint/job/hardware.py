"""The parts of a Job that say what it runs on."""

from __future__ import annotations

from dataclasses import dataclass

from ..declared import declared


@dataclass(slots=True)
class Hardware:
    """The hardware that the job runs on."""

    gpu: str | None = declared("The GPU's name in the catalogue, such as `h100-80gb`.", None)
    gpus: int | None = declared("GPUs of the whole job, over all nodes.", None, least=1)
    nodes: int | None = declared("Nodes of the job.", None, least=1)
    asked_gpus: int | None = declared("GPUs that the launcher requests from the cluster.", None, least=0)
    granted_gpus: int | None = declared(
        "The most GPUs that the launcher gives this job; null if it names several choices or other nodes add some.",
        None,
        least=0,
    )
    visible_gpus: int | None = declared("GPUs that CUDA_VISIBLE_DEVICES shows the job on its only node.", None, least=0)
    started_ranks: int | None = declared(
        "Processes that the launch command starts on a node, a GPU each.", None, least=0
    )
    host_memory: int | None = declared("Host RAM of a node.", None, unit="bytes", least=0)
    shared_memory: int | None = declared("Size of `/dev/shm` on a node.", None, unit="bytes", least=0)
    contexts: int = declared(
        "Processes with a CUDA context on each GPU: more than one if every rank asks every GPU for its free "
        "memory (accelerate's `get_max_memory`, for a rank's own device map).",
        1,
        least=0,
    )


@dataclass(slots=True)
class CachingAllocator:
    """PYTORCH_ALLOC_CONF: torch's allocator settings that change memory, by torch's names."""

    expandable_segments: bool = declared("Whether segments can grow.", False)
    max_split_size_mb: int | None = declared("Largest block that may be split, in MiB.", None, least=0)
    roundup_power2_divisions: int | None = declared(
        "Divisions between powers of two to which sizes are rounded.", None, least=0
    )
