"""The releases whose keys a torchtitan file may have, and where each has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...source.document import Document

UPSTREAM = "torchtitan 0.2.2"
MIDDLE = "torchtitan 0.1.0"
"""From `[parallelism]` on (785c34c99, March 2025) until `[compile]` (08b8b244f, August 2025): #1094, which took the
embedding and the head out of FSDP's root, is three weeks older than the latter."""

OLD = "torchtitan 0.0.2"
"""Until `[parallelism]`: the version stood still from April 2024 to June 2025."""

SHARD, REPLICATE = (f"parallelism.data_parallel_{name}_degree" for name in ("shard", "replicate"))

_FORMER = {
    UPSTREAM: {},
    MIDDLE: {"compile.enable": "training.compile"},
    OLD: {
        "compile.enable": "training.compile",
        "parallelism.tensor_parallel_degree": "training.tensor_parallel_degree",
        SHARD: "training.data_parallel_shard_degree",
        REPLICATE: "training.data_parallel_replicate_degree",
        "parallelism.context_parallel_degree": "experimental.context_parallel_degree",
        **{
            f"parallelism.pipeline_parallel_{name}": f"experimental.pipeline_parallel_{name}"
            for name in ("degree", "schedule", "layers_per_stage", "microbatch_size")
        },
    },
}
"""Release -> keys of 0.2.2 and where its files have them."""

WITHOUT = {"parallelism.fsdp.offload": (OLD,), "parallelism.expert": (OLD, MIDDLE), "weights.dtype": (OLD, MIDDLE)}
"""Job field -> the releases that have no key for it."""


def release_of(document: Document) -> str:
    """The release whose keys the file has; with `[compile]` it is a new one, whatever else is left in it."""
    if document.root.get("compile") is not None:
        return UPSTREAM
    if document.root.find("training.batch_size") is not None and document.root.get("parallelism") is None:
        return OLD
    former = ("training.batch_size", "training.compile")
    return MIDDLE if any(document.root.find(key) is not None for key in former) else UPSTREAM


def version_of(release: str) -> str:
    """The version of a release: 0.1.0 of `torchtitan 0.1.0`."""
    return release.rpartition(" ")[2]


def places(document: Document, release: str) -> dict[str, str]:
    """Keys of 0.2.2 -> what the file's release calls them; the batch kept its first name until June 2025."""
    early = document.root.find("training.batch_size") is not None
    batch = {"training.local_batch_size": "training.batch_size"} if early else {}
    return {**batch, **_FORMER[release]}
