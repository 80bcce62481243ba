"""Job changes in the words of H2O LLM Studio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.dotted_edits import Vocabulary, said_in

if TYPE_CHECKING:
    from ..core.format import Reading
    from ..core.key_changes import Keys


def _checkpointing(_reading: Reading, value: str) -> Keys | None:
    return {"architecture.gradient_checkpointing": value == "full"} if value in ("full", "none") else None


def _method(reading: Reading, value: str) -> Keys | None:
    if value not in ("full", "lora"):
        return None
    own = {"training.lora_r": 16} if value == "lora" and reading.job.method != "lora" else {}
    return {"training.lora": value == "lora", **own}


def _quantization(_reading: Reading, value: str | None) -> Keys | None:
    word = {"bnb-nf4": "int4", "bnb-int8": "int8", None: "bfloat16"}.get(value)
    return {"architecture.backbone_dtype": word} if word else None


def _optimizer(_reading: Reading, value: str) -> Keys | None:
    word = {"adamw_8bit": "AdamW8bit", "adamw_torch": "AdamW", "sgd_momentum": "SGD"}.get(value)
    return {"training.optimizer": word} if word else None


def _stage(_reading: Reading, value: int) -> Keys | None:
    if value not in (2, 3):
        return None
    return {"environment.use_deepspeed": True, "environment.deepspeed_method": f"ZeRO{value}"}


VOCABULARY = Vocabulary(
    {
        "micro_batch_size": "training.batch_size",
        "gradient_accumulation_steps": "training.grad_accumulation",
        "sequence_length": "tokenizer.max_length",
        "adapter.r": "training.lora_r",
        "evaluation.micro_batch_size": "prediction.batch_size_inference",
    },
    {
        "activation_checkpointing": _checkpointing,
        "method": _method,
        "weights.quantization.method": _quantization,
        "optimizer.name": _optimizer,
        "parallelism.zero.stage": _stage,
    },
)


describe, edits = said_in(VOCABULARY)
