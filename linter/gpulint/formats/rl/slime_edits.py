"""Job changes in the words of slime's options, which are Megatron-LM's but for the rows of a micro batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.dotted_edits import said_in
from ..megatron.edits import VOCABULARY as MEGATRON

if TYPE_CHECKING:
    from ..core.format import Reading
    from ..core.key_changes import Keys


def _micro(reading: Reading, value: int) -> Keys | None:
    """None where a micro batch is one of tokens."""
    return None if reading.job.packing else {"micro-batch-size": value}


def _length(reading: Reading, value: int) -> Keys | None:
    """The tokens of a micro batch on each rank, where they are more than the longest row has."""
    origin = reading.job.origins["sequence_length"].key or ""
    if origin.replace("-", "_") != "max_tokens_per_gpu" or value % reading.job.parallelism.context:
        return None
    row = (reading.job.rl.prompt_length or 0) + (reading.job.rl.completion_length or 0)
    return None if value < row else {"max-tokens-per-gpu": value // reading.job.parallelism.context}


def _share(_: Reading, value: float) -> Keys:
    return {"sglang-mem-fraction-static": value}


VOCABULARY = MEGATRON._replace(
    keys={path: key for path, key in MEGATRON.keys.items() if path not in ("micro_batch_size", "sequence_length")},
    says={
        "activation_checkpointing": MEGATRON.says["activation_checkpointing"],
        "micro_batch_size": _micro,
        "rl.vllm_gpu_memory_utilization": _share,
        "sequence_length": _length,
    },
)

describe, edits = said_in(VOCABULARY)
