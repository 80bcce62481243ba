"""Job changes in the words of ms-swift."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .dotted_edits import Vocabulary, wanted_keys
from .key_changes import Keys, edits_of, spoken

if TYPE_CHECKING:
    from ..finding import Edit
    from .format import Reading


def _checkpointing(_reading: Reading, value: str) -> Keys | None:
    return {"gradient_checkpointing": value == "full"} if value in ("full", "none") else None


def _spelt(reading: Reading, *names: str) -> str:
    return next((name for name in names if reading.config.root.entry(name) is not None), names[0])


def _method(reading: Reading, value: str) -> Keys | None:
    if value not in ("full", "lora"):
        return None
    return {_spelt(reading, "tuner_type", "train_type", "sft_type"): value}


def _quantization(_reading: Reading, value: str | None) -> Keys | None:
    bits = {"bnb-nf4": 4, "bnb-int8": 8}.get(value or "")
    return {"quant_method": "bnb", "quant_bits": bits} if bits else None


def _attention(_reading: Reading, value: str) -> Keys | None:
    return {"attn_impl": {"flex": "flex_attention"}.get(value, value)}


def _stage(_reading: Reading, value: int) -> Keys | None:
    return {"deepspeed": f"zero{value}"}


def _offload(reading: Reading, value: str) -> Keys | None:
    stage = reading.job.get("parallelism.zero.stage")
    return {"deepspeed": f"zero{stage}_offload"} if value == "cpu" and stage in (2, 3) else None


def _loss(reading: Reading, value: str) -> Keys | None:
    return {"use_liger_kernel": True} if value == "liger" and reading.job.objective in ("sft", "pretrain") else None


VOCABULARY = Vocabulary(
    {
        "micro_batch_size": "per_device_train_batch_size",
        "gradient_accumulation_steps": "gradient_accumulation_steps",
        "sequence_length": "max_length",
        "adapter.r": "lora_rank",
        "optimizer.name": "optim",
        "weights.dtype": "torch_dtype",
        "packing": "packing",
        "parallelism.context": "sequence_parallel_size",
        "evaluation.micro_batch_size": "per_device_eval_batch_size",
        "rl.vllm_gpu_memory_utilization": "vllm_gpu_memory_utilization",
        "rl.generations": "num_generations",
        "rl.completion_length": "max_completion_length",
    },
    {
        "activation_checkpointing": _checkpointing,
        "method": _method,
        "weights.quantization.method": _quantization,
        "attention": _attention,
        "loss.kernel": _loss,
        "parallelism.zero.stage": _stage,
        "parallelism.zero.offload_optimizer.device": _offload,
        "rl.vllm_sleep": lambda _reading, value: {"sleep_level": 1 if value else 0},
        "rl.policy_offload": lambda _reading, value: {"offload_model": value, "offload_optimizer": value},
    },
)


def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
    """The change as arguments: `per_device_train_batch_size: 1`."""
    return spoken(wanted_keys(VOCABULARY, reading, changes))


def edits(reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:
    """The edits that make the change; None when the format cannot say it or the file cannot be edited safely."""
    return edits_of(reading.config, wanted_keys(VOCABULARY, reading, changes))
