"""Job changes in the words of Megatron-SWIFT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.dotted_edits import Vocabulary, said_in

if TYPE_CHECKING:
    from ..core.format import Reading
    from ..core.key_changes import Keys

_RECOMPUTE = ("recompute_granularity", "recompute_method", "recompute_num_layers")


def _checkpointing(_reading: Reading, value: str) -> Keys | None:
    if value == "full":
        return dict(zip(_RECOMPUTE, ("full", "uniform", 1), strict=True))
    if value in ("selective", "none"):
        return {_RECOMPUTE[0]: value, _RECOMPUTE[1]: None, _RECOMPUTE[2]: None}
    return None


def _stage(_reading: Reading, value: int) -> Keys | None:
    return {"use_distributed_optimizer": True} if value == 1 else None


VOCABULARY = Vocabulary(
    {
        "micro_batch_size": "micro_batch_size",
        "sequence_length": "max_length",
        "adapter.r": "lora_rank",
        "parallelism.tensor": "tensor_model_parallel_size",
        "parallelism.pipeline": "pipeline_model_parallel_size",
        "parallelism.context": "context_parallel_size",
        "parallelism.expert": "expert_model_parallel_size",
        "parallelism.sequence": "sequence_parallel",
    },
    {"activation_checkpointing": _checkpointing, "parallelism.zero.stage": _stage},
    total="global_batch_size",
    ignored=frozenset({"checkpoint_policy"}),
)

describe, edits = said_in(VOCABULARY)
