"""Job changes in the words of mistral-finetune."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.dotted_edits import Vocabulary, said_in

if TYPE_CHECKING:
    from ..core.format import Reading
    from ..core.key_changes import Keys


def _checkpointing(_reading: Reading, value: str) -> Keys | None:
    return {"checkpoint": value == "full"} if value in ("full", "none") else None


def _method(reading: Reading, value: str) -> Keys | None:
    if value not in ("full", "lora"):
        return None
    own = {"lora.rank": 16} if value == "lora" and reading.job.method != "lora" else {}
    return {"lora.enable": value == "lora", **own}


VOCABULARY = Vocabulary(
    {
        "micro_batch_size": "batch_size",
        "gradient_accumulation_steps": "num_microbatches",
        "sequence_length": "seq_len",
        "adapter.r": "lora.rank",
    },
    {"activation_checkpointing": _checkpointing, "method": _method},
)

describe, edits = said_in(VOCABULARY)
