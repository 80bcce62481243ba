"""Job changes in the words of nanotron."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.dotted_edits import Vocabulary, said_in

if TYPE_CHECKING:
    from ..core.format import Reading
    from ..core.key_changes import Keys


def _checkpointing(_reading: Reading, value: str) -> Keys | None:
    return {"parallelism.recompute_layer": value == "full"} if value in ("none", "full") else None


def _stage(_reading: Reading, value: int) -> Keys | None:
    """nanotron divides optimizer states, and no more."""
    return {"optimizer.zero_stage": value} if value in (0, 1) else None


def _dtype(_reading: Reading, value: str) -> Keys | None:
    return {"model.dtype": value} if value in ("bfloat16", "float32") else None


VOCABULARY = Vocabulary(
    {
        "micro_batch_size": "tokens.micro_batch_size",
        "gradient_accumulation_steps": "tokens.batch_accumulation_per_replica",
        "sequence_length": "tokens.sequence_length",
        "parallelism.tensor": "parallelism.tp",
        "parallelism.pipeline": "parallelism.pp",
        "parallelism.context": "parallelism.context_parallel_size",
        "parallelism.expert": "parallelism.expert_parallel_size",
    },
    {
        "activation_checkpointing": _checkpointing,
        "parallelism.zero.stage": _stage,
        "weights.dtype": _dtype,
    },
)

describe, edits = said_in(VOCABULARY)
