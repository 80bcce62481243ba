"""Job changes in the words of Megatron-Bridge's ConfigContainer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.dotted_edits import Vocabulary, said_in

if TYPE_CHECKING:
    from ..core.format import Reading
    from ..core.key_changes import Keys


def _length(reading: Reading, value: int) -> Keys | None:
    """Both sections say it, and must agree."""
    wanted: Keys = {"model.seq_length": value}
    if reading.config.root.get("dataset") is not None:
        wanted["dataset.seq_length"] = value
    return wanted


def _checkpointing(_reading: Reading, value: str) -> Keys | None:
    names = [f"model.recompute_{name}" for name in ("granularity", "method", "num_layers")]
    if value == "full":
        return dict(zip(names, ("full", "uniform", 1), strict=True))
    if value == "selective":
        return {names[0]: "selective"}
    return dict.fromkeys(names) if value == "none" else None


def _stage(_reading: Reading, value: int) -> Keys | None:
    return {"ddp.use_distributed_optimizer": True} if value == 1 else None


VOCABULARY = Vocabulary(
    {
        "micro_batch_size": "train.micro_batch_size",
        "parallelism.tensor": "model.tensor_model_parallel_size",
        "parallelism.pipeline": "model.pipeline_model_parallel_size",
        "parallelism.context": "model.context_parallel_size",
        "parallelism.expert": "model.expert_model_parallel_size",
        "parallelism.sequence": "model.sequence_parallel",
        "adapter.r": "peft.dim",
    },
    {
        "sequence_length": _length,
        "activation_checkpointing": _checkpointing,
        "parallelism.zero.stage": _stage,
    },
    total="train.global_batch_size",
    ignored=frozenset({"checkpoint_policy"}),
)

describe, edits = said_in(VOCABULARY)
