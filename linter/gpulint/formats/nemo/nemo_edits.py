"""Job changes in the words of NeMo 1.x."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.dotted_edits import Vocabulary, said_in

if TYPE_CHECKING:
    from ..core.format import Reading
    from ..core.key_changes import Keys

_RECOMPUTE = tuple(f"activations_checkpoint_{name}" for name in ("granularity", "method", "num_layers"))


def _length(reading: Reading, value: int) -> Keys | None:
    wanted: Keys = {"encoder_seq_length": value}
    if reading.config.root.find("model.data.seq_length") is not None:
        wanted["data.seq_length"] = value
    return wanted


def _checkpointing(_reading: Reading, value: str) -> Keys | None:
    if value == "full":
        return dict(zip(_RECOMPUTE, ("full", "uniform", 1), strict=True))
    if value == "selective":
        return {_RECOMPUTE[0]: "selective"}
    return dict.fromkeys(_RECOMPUTE) if value == "none" else None


def _stage(reading: Reading, value: int) -> Keys | None:
    """NeMo's distributed Adam divides float32 states, as ZeRO-1 does."""
    takes = value == 1 and reading.job.precision.master_weights
    return {"optim.name": "distributed_fused_adam"} if takes else None


def _rank(reading: Reading, value: int) -> Keys | None:
    return {"peft.lora_tuning.adapter_dim": value} if reading.job.adapter is not None else None


VOCABULARY = Vocabulary(
    {
        "micro_batch_size": "micro_batch_size",
        "parallelism.tensor": "tensor_model_parallel_size",
        "parallelism.pipeline": "pipeline_model_parallel_size",
        "parallelism.context": "context_parallel_size",
        "parallelism.expert": "expert_model_parallel_size",
        "parallelism.sequence": "sequence_parallel",
    },
    {
        "sequence_length": _length,
        "activation_checkpointing": _checkpointing,
        "parallelism.zero.stage": _stage,
        "adapter.r": _rank,
    },
    total="global_batch_size",
    spelled=lambda _reading, key: f"model.{key}",
    ignored=frozenset({"checkpoint_policy"}),
)

describe, edits = said_in(VOCABULARY)
