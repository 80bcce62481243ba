"""Job changes in the words of OLMo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.dotted_edits import Vocabulary, said_in

if TYPE_CHECKING:
    from ..core.format import Reading
    from ..core.key_changes import Keys


def _checkpointing(_reading: Reading, value: str | int) -> Keys | None:
    """`whole_layer` is every layer; null is none."""
    words = {"full": "whole_layer", "selective": "fine_grained", "none": None, 1: "whole_layer"}
    return {"activation_checkpointing": words[value]} if value in words else None


def _autocast(_reading: Reading, value: str | None) -> Keys | None:
    word = {"bfloat16": "amp_bf16", "float16": "amp_fp16", None: "fp32"}.get(value)
    return {"precision": word} if word else None


def _sharding(_reading: Reading, value: str) -> Keys | None:
    if value not in ("full_shard", "shard_grad_op", "no_shard"):
        return None
    section = {"sharding_strategy": value.upper(), "wrapping_strategy": "by_block"}
    return {"distributed_strategy": "fsdp", **{f"fsdp.{key}": word for key, word in section.items()}}


def _optimizer(_reading: Reading, value: str) -> Keys | None:
    word = {"adamw_torch": "adamw", "lion_pytorch": "lionw"}.get(value)
    return {"optimizer.name": word} if word else None


def _evaluation(reading: Reading, value: int) -> Keys | None:
    return {"device_eval_batch_size": value} if reading.job.evaluation.micro_batch_size else None


VOCABULARY = Vocabulary(
    {"micro_batch_size": "device_train_microbatch_size", "sequence_length": "model.max_sequence_length"},
    {
        "activation_checkpointing": _checkpointing,
        "checkpoint_every": _checkpointing,
        "precision.autocast": _autocast,
        "parallelism.fsdp.sharding": _sharding,
        "optimizer.name": _optimizer,
        "evaluation.micro_batch_size": _evaluation,
    },
    total="global_train_batch_size",
)

describe, edits = said_in(VOCABULARY)
