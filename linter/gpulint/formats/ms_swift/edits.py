"""Job changes in the words of ms-swift."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.dotted_edits import Vocabulary, said_in
from ..core.key_changes import OFFLOADS, ZERO

if TYPE_CHECKING:
    from ..core.format import Reading
    from ..core.key_changes import Keys


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


def _zero(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """One of the files that ms-swift ships by name; those that offload, offload all that their stage can."""
    stage = changes.get(f"{ZERO}stage", reading.job.get(f"{ZERO}stage"))
    devices = {changes.get(path, reading.job.get(path) or "none") for path in OFFLOADS}
    if stage not in (0, 1, 2, 3) or not devices <= {"none", "cpu"} or ("cpu" in devices and stage < 2):
        return None
    return {"deepspeed": f"zero{stage}" + "_offload" * ("cpu" in devices), "fsdp": None}


def _autocast(_reading: Reading, value: str | None) -> Keys | None:
    return {"bf16": value == "bfloat16", "fp16": True if value == "float16" else None}


def _sharding(_reading: Reading, value: str) -> Keys | None:
    """The FSDP2 config that ms-swift ships."""
    return {"fsdp": "fsdp2", "deepspeed": None} if value == "full_shard" else None


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
        "precision.autocast": _autocast,
        "parallelism.fsdp.sharding": _sharding,
        "rl.vllm_sleep": lambda _reading, value: {"sleep_level": 1 if value else 0},
        "rl.policy_offload": lambda _reading, value: {"offload_model": value, "offload_optimizer": value},
    },
    zero=_zero,
)


describe, edits = said_in(VOCABULARY)
