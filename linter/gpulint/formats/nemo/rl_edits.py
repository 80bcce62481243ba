"""Job changes in the words of NeMo RL configs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.backends.megatron import is_megatron
from ..core.dotted_edits import Vocabulary, said_in
from .rl_policy import DTENSOR, MEGATRON
from .rl_rollout import _ENGINES as ENGINES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.format import Reading
    from ..core.key_changes import Keys


def _megatron(reading: Reading) -> bool:
    return is_megatron(reading.job)


def _backend(megatron: str, dtensor: str) -> Callable[[Reading, Any], Keys | None]:
    """A key of the section of the backend that trains; "" where it has none."""

    def say(reading: Reading, value: Any) -> Keys | None:
        section, key = (MEGATRON, megatron) if _megatron(reading) else (DTENSOR, dtensor)
        return {f"{section}.{key}": value} if key else None

    return say


def _checkpointing(reading: Reading, value: str) -> Keys | None:
    if not _megatron(reading):
        return {f"{DTENSOR}.activation_checkpointing": value == "full"} if value in ("full", "none") else None
    wanted: Keys = {f"{MEGATRON}.activation_checkpointing": value != "none"}
    if value in ("full", "selective"):
        wanted[f"{MEGATRON}.recompute_granularity"] = value
    return wanted if value in ("full", "none", "selective") else None


def _batch(reading: Reading, value: int) -> Keys | None:
    """Rows of a micro batch; where rows are packed, the tokens of one."""
    origin = reading.job.origins.get("micro_batch_size")
    if origin is not None and origin.key and origin.key.endswith("train_mb_tokens"):
        written = reading.config.root.find(origin.key)
        if written is not None and not isinstance(written.value.value, str):
            return {origin.key: value * (reading.job.sequence_length or 0)} if reading.job.sequence_length else None
    return {"policy.train_micro_batch_size": value}


def _method(reading: Reading, value: str) -> Keys | None:
    section = f"{MEGATRON}.peft" if _megatron(reading) else f"{DTENSOR}.lora_cfg"
    if value not in ("full", "lora"):
        return None
    wanted: Keys = {f"{section}.enabled": value == "lora"}
    if value == "lora" and reading.job.method != "lora":
        wanted |= {f"{section}.dim": 16, f"{section}.alpha": 32}
    return wanted


def _share(reading: Reading, value: float) -> Keys | None:
    entry = reading.config.root.find("policy.generation.backend")
    key = ENGINES.get(str(entry.value.value) if entry is not None else "vllm")
    return {key: value} if key and reading.job.rl.vllm == "colocate" else None


def _offload(reading: Reading, value: str) -> Keys | None:
    if not _megatron(reading) or value not in ("cpu", "none"):
        return None
    share = 1.0 if value == "cpu" else 0.0
    section = f"{MEGATRON}.optimizer"
    return {f"{section}.optimizer_cpu_offload": value == "cpu", f"{section}.optimizer_offload_fraction": share}


VOCABULARY = Vocabulary(
    {"sequence_length": "policy.max_total_sequence_length"},
    {
        "activation_checkpointing": _checkpointing,
        "micro_batch_size": _batch,
        "method": _method,
        "adapter.r": lambda reading, value: (
            {f"{MEGATRON}.peft.dim" if _megatron(reading) else f"{DTENSOR}.lora_cfg.dim": value}
            if reading.job.adapter is not None
            else {}
        ),
        "parallelism.tensor": _backend("tensor_model_parallel_size", "tensor_parallel_size"),
        "parallelism.pipeline": _backend("pipeline_model_parallel_size", ""),
        "parallelism.context": _backend("context_parallel_size", "context_parallel_size"),
        "parallelism.expert": _backend("expert_model_parallel_size", "expert_parallel_size"),
        "parallelism.sequence": _backend("sequence_parallel", "sequence_parallel"),
        "parallelism.fsdp.offload": _backend("", "cpu_offload"),
        "parallelism.zero.offload_optimizer.device": _offload,
        "rl.vllm_gpu_memory_utilization": _share,
    },
    total="policy.train_global_batch_size",
)


describe, edits = said_in(VOCABULARY)
