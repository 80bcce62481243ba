"""Job changes in the words of prime-rl's TOML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.dotted_edits import ACCUMULATION, Vocabulary, said_in

if TYPE_CHECKING:
    from ..core.format import Reading
    from ..core.key_changes import Keys


def _spelled(reading: Reading, key: str) -> str:
    """Keys of the trainer's model stand below `trainer` in a file of the `rl` entry point."""
    return f"trainer.{key}" if key.startswith("model.") and reading.job.objective == "grpo" else key


def _length(reading: Reading, value: int) -> Keys | None:
    origin = reading.job.origins.get("sequence_length")
    written = origin.key if origin is not None and origin.kind == "file" else None
    return {written or ("seq_len" if reading.job.objective == "grpo" else "data.seq_len"): value}


def _batch(reading: Reading, value: int) -> Keys | None:
    return {"data.micro_batch_size": value} if reading.job.objective == "sft" else None


def _method(reading: Reading, value: str) -> Keys | None:
    return {"model.lora.rank": 16} if value == "lora" and reading.job.method != "lora" else None


def _dtype(_reading: Reading, value: str) -> Keys | None:
    return {"model.optimization_dtype": value} if value in ("bfloat16", "float32") else None


VOCABULARY = Vocabulary(
    {
        "adapter.r": "model.lora.rank",
        "parallelism.context": "model.cp",
        "parallelism.expert": "model.ep",
        "parallelism.fsdp.offload": "model.fsdp_cpu_offload",
        "parallelism.fsdp.reshard_after_forward": "model.reshard_after_forward",
    },
    {"sequence_length": _length, "micro_batch_size": _batch, "method": _method, "weights.dtype": _dtype},
    spelled=_spelled,
    ignored=frozenset({ACCUMULATION}),
)

describe, edits = said_in(VOCABULARY)
