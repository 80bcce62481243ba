"""FSDP; FSDP2 as trainers of reinforcement learning put it on: torch's `fully_shard`, one unit a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..bindings.kinds import FLAG, POSITIVE, Unsaid
from ..bindings.rows import Default, Derived, Fixed, Key
from ..bindings.spelling import DTYPE

if TYPE_CHECKING:
    from typing import Any

    from ....job.job import Job
    from ..bindings.reader import Reader
    from ..bindings.rows import Row

FSDP = "parallelism.fsdp."


def may_shard(job: Job) -> bool:
    """Whether no row before this one has said that there is no FSDP."""
    return "parallelism.fsdp" not in job.origins


def fsdp2(
    *, reshard: str = "", size: str = "", offload: str = "", param_dtype: str = "", reduce_dtype: str = "",
    note: str = "",
) -> tuple[Row, ...]:  # fmt: skip
    """Weights in shards that are gathered in bfloat16, gradients that are reduced in float32 after every micro batch.

    The arguments are the tool's keys, "" for what it has no key for: whether a layer is let go after its forward pass,
    the ranks of a group that divides the weights, offload to main memory, the dtypes of the mixed precision policy. A
    tool that differs in a field says that field in a row of its own before these. `note` is upstream's place.
    """
    return (
        Fixed("parallelism.zero", None),
        Fixed("precision.master_weights", False),
        Fixed("precision.gradients", Derived(None, "gradients have the dtype of their weight")),
        Fixed(f"{FSDP}version", Default(2, note)),
        Fixed(f"{FSDP}wrap", Default("transformer", note)),
        Fixed(f"{FSDP}upcast_trainable", False),
        Fixed(f"{FSDP}sync_each_batch", True),
        _said(f"{FSDP}reshard_after_forward", reshard, FLAG, default=True),
        *((Key(f"{FSDP}shard_size", size, POSITIVE, to=_smaller, back=_smaller),) if size else ()),
        Fixed(f"{FSDP}sharding", _sharding(note)),
        _said(f"{FSDP}mixed_precision.param_dtype", param_dtype, DTYPE, default="bfloat16"),
        _said(f"{FSDP}mixed_precision.reduce_dtype", reduce_dtype, DTYPE, default="float32"),
        _said(f"{FSDP}offload", offload, FLAG, default=False),
    )


def _said(field: str, key: str, kind: Any, *, default: Any) -> Row:
    return Key(field, key, kind, default=default) if key else Fixed(field, default)


def _smaller(ranks: int, job: Job) -> Any:
    """The ranks of a group, where that is not all of them."""
    return ranks if ranks < (job.hardware.gpus or 1) else Unsaid.OTHER


def _sharding(note: str) -> Any:
    def source(reader: Reader) -> Default:
        fsdp = reader.job.parallelism.fsdp
        return Default("hybrid_shard" if fsdp is not None and fsdp.shard_size else "full_shard", note)

    return source
