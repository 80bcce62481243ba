"""Job changes in the words of lingua."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.dotted_edits import Vocabulary, said_in

if TYPE_CHECKING:
    from ..core.format import Reading
    from ..core.key_changes import Keys


def _checkpointing(_reading: Reading, value: str) -> Keys | None:
    """It checkpoints all that is no product, or nothing."""
    key = "distributed.selective_activation_checkpointing"
    return {key: value == "selective"} if value in ("none", "selective") else None


def _sharding(reading: Reading, value: str) -> Keys | None:
    """Over all data parallel ranks; layers stay whole between forward and backward, whatever the name says."""
    if value not in ("full_shard", "shard_grad_op"):
        return None
    job = reading.job
    ranks = max(1, (job.hardware.gpus or 1) // job.parallelism.tensor)
    return {"distributed.fsdp_type": "full_shard", "distributed.dp_shard": ranks, "distributed.dp_replicate": 1}


VOCABULARY = Vocabulary(
    {
        "micro_batch_size": "data.batch_size",
        "gradient_accumulation_steps": "grad_acc_steps",
        "sequence_length": "data.seq_len",
        "parallelism.tensor": "distributed.tp_size",
        "compile": "distributed.compile",
    },
    {
        "activation_checkpointing": _checkpointing,
        "parallelism.fsdp.sharding": _sharding,
    },
    ignored=frozenset({"checkpoint_policy"}),
)

describe, edits = said_in(VOCABULARY)
