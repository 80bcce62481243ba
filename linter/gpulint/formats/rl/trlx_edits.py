"""Job changes in the words of trlx."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.dotted_edits import ACCUMULATION, Vocabulary, said_in

if TYPE_CHECKING:
    from ..core.format import Reading
    from ..core.key_changes import Keys


def _batch(_reading: Reading, value: int) -> Keys | None:
    """`batch_size` stays: what goes through the model at once is its part."""
    return {"train.minibatch_size": value}


def _method(reading: Reading, value: str) -> Keys | None:
    if value == "full":
        return {"model.peft_config": None}
    if value != "lora":
        return None
    adapter = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 16, "lora_alpha": 32}
    return {} if reading.job.method == "lora" else {"model.peft_config": adapter}


def _optimizer(_reading: Reading, value: str) -> Keys | None:
    word = {"adamw_8bit": "adamw_8bit_bnb", "adamw_torch": "adamw"}.get(value)
    return {"optimizer.name": word} if word else None


VOCABULARY = Vocabulary(
    {"sequence_length": "train.seq_length", "adapter.r": "model.peft_config.r"},
    {"micro_batch_size": _batch, "method": _method, "optimizer.name": _optimizer},
    ignored=frozenset({ACCUMULATION}),
)

describe, edits = said_in(VOCABULARY)
