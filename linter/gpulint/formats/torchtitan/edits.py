"""Job changes in the words of torchtitan's TOML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.dotted_edits import Vocabulary, said_in
from .format import MIDDLE, OLD

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.format import Reading
    from ..core.key_changes import Keys

_ARGPARSE = {
    "training.local_batch_size": "training.batch_size",
    "parallelism.tensor_parallel_degree": "training.tensor_parallel_degree",
    "parallelism.data_parallel_shard_degree": "training.data_parallel_shard_degree",
    "parallelism.data_parallel_replicate_degree": "training.data_parallel_replicate_degree",
    "parallelism.context_parallel_degree": "experimental.context_parallel_degree",
    "parallelism.pipeline_parallel_degree": "experimental.pipeline_parallel_degree",
    "compile.enable": "training.compile",
}
"""Keys of 0.2.2 -> where files without `[parallelism]` had them."""

_BETWEEN = {"compile.enable": "training.compile"}
"""The same for files with it that have no `[compile]`."""


def _early(reading: Reading) -> bool:
    """Whether the batch still has its first name, `training.batch_size`: until June 2025."""
    return reading.config.root.find("training.batch_size") is not None


def _is_old(reading: Reading) -> bool:
    """A file of the argparse days."""
    return reading.upstream == OLD


def _is_former(reading: Reading) -> bool:
    """A file of before 0.2, whose switch of compilation is one of `[training]`."""
    return reading.upstream in (OLD, MIDDLE)


def _spelled(reading: Reading, key: str) -> str:
    if _is_old(reading):
        return _ARGPARSE.get(key, key)
    if key == "training.local_batch_size" and _early(reading):
        return "training.batch_size"
    return _BETWEEN.get(key, key) if _is_former(reading) else key


def _batch(reading: Reading, value: int) -> Keys | None:
    """Pipelines cut the local batch into micro batches of their own."""
    return {"training.local_batch_size": value} if reading.job.parallelism.pipeline == 1 else None


def _checkpointing(_reading: Reading, value: str) -> Keys | None:
    return {"activation_checkpoint.mode": value} if value in ("none", "full") else None


def _sharding(_reading: Reading, value: str) -> Keys | None:
    """All ranks that no other degree takes; -1 is torchtitan's word for them."""
    if value != "full_shard":
        return None
    return {"parallelism.data_parallel_shard_degree": -1, "parallelism.data_parallel_replicate_degree": 1}


def _newer(key: str, before: Callable[[Reading], bool] = _is_former) -> Any:
    """A key that files of older releases do not have."""

    def say(reading: Reading, value: Any) -> Keys | None:
        return None if before(reading) else {key: value}

    return say


def _dtype(reading: Reading, value: str) -> Keys | None:
    return None if _is_former(reading) or value not in ("bfloat16", "float32") else {"training.dtype": value}


def _evaluation(reading: Reading, value: int) -> Keys | None:
    runs = reading.job.evaluation.micro_batch_size is not None
    return {"validation.local_batch_size": value} if runs else None


VOCABULARY = Vocabulary(
    {
        "sequence_length": "training.seq_len",
        "parallelism.tensor": "parallelism.tensor_parallel_degree",
        "parallelism.context": "parallelism.context_parallel_degree",
        "parallelism.pipeline": "parallelism.pipeline_parallel_degree",
        "compile": "compile.enable",
    },
    {
        "micro_batch_size": _batch,
        "activation_checkpointing": _checkpointing,
        "parallelism.fsdp.sharding": _sharding,
        "parallelism.fsdp.offload": _newer("training.enable_cpu_offload", _is_old),
        "parallelism.expert": _newer("parallelism.expert_parallel_degree"),
        "weights.dtype": _dtype,
        "evaluation.micro_batch_size": _evaluation,
    },
    total="training.global_batch_size",
    spelled=_spelled,
)

describe, edits = said_in(VOCABULARY)
