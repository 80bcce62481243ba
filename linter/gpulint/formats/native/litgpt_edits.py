"""Job changes in the words of LitGPT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.dotted_edits import Vocabulary, said_in

if TYPE_CHECKING:
    from ..core.format import Reading
    from ..core.key_changes import Keys

_PACKED = {"bnb-nf4": "bnb.nf4", "bnb-fp4": "bnb.fp4", "bnb-int8": "bnb.int8-training"}
_OPTIMIZERS = {
    "adamw_8bit": "bitsandbytes.optim.AdamW8bit",
    "paged_adamw_8bit": "bitsandbytes.optim.PagedAdamW8bit",
    "sgd": "torch.optim.SGD",
}
_ARGUMENTS = frozenset({"lr", "weight_decay", "betas", "eps"})
"""What every Adam takes."""


def _quantization(reading: Reading, value: str) -> Keys | None:
    """Only the scripts of adapters have `quantize`, and only on one device."""
    alone = reading.job.adapter is not None and (reading.job.hardware.gpus or 1) == 1
    return {"quantize": _PACKED[value], "precision": "bf16-true"} if value in _PACKED and alone else None


def _dtype(_reading: Reading, value: str) -> Keys | None:
    word = {"bfloat16": "bf16-true", "float32": "32-true"}.get(value)
    return {"precision": word} if word else None


def _autocast(_reading: Reading, value: str | None) -> Keys | None:
    word = {"bfloat16": "bf16-mixed", "float16": "16-mixed", None: "32-true"}.get(value)
    return {"precision": word} if word else None


def _optimizer(reading: Reading, value: str) -> Keys | None:
    """The class by its path, alone or as `class_path` beside arguments that it takes, too."""
    given = reading.config.root.get("optimizer")
    if value not in _OPTIMIZERS:
        return None
    if given is None or not given.is_mapping:
        return {"optimizer": _OPTIMIZERS[value]}
    arguments = given.get("init_args")
    fits = arguments is None or _ARGUMENTS.issuperset(map(str, arguments.keys()))
    return {"optimizer.class_path": _OPTIMIZERS[value]} if fits else None


VOCABULARY = Vocabulary(
    {
        "micro_batch_size": "train.micro_batch_size",
        "sequence_length": "train.max_seq_length",
        "adapter.r": "lora_r",
    },
    {
        "weights.quantization.method": _quantization,
        "weights.dtype": _dtype,
        "precision.autocast": _autocast,
        "optimizer.name": _optimizer,
    },
    total="train.global_batch_size",
)

describe, edits = said_in(VOCABULARY)
