"""Job changes in the words of SkyRL configs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.dotted_edits import ACCUMULATION, Vocabulary, said_in

if TYPE_CHECKING:
    from ..core.format import Reading
    from ..core.key_changes import Keys

_POLICY = "trainer.policy"


def _megatron(reading: Reading) -> bool:
    return reading.job.framework == "megatron"


def _checkpointing(reading: Reading, value: str) -> Keys | None:
    if _megatron(reading):
        key = f"{_POLICY}.megatron_config.transformer_config_kwargs.recompute_granularity"
        return {key: value} if value in ("full", "selective") else None
    return {"trainer.gradient_checkpointing": value == "full"} if value in ("full", "none") else None


def _offload(reading: Reading, value: bool) -> Keys | None:
    return None if _megatron(reading) else {f"{_POLICY}.fsdp_config.cpu_offload": value}


def _reshard(reading: Reading, value: bool) -> Keys | None:
    return None if _megatron(reading) else {f"{_POLICY}.fsdp_config.reshard_after_forward": value}


def _method(reading: Reading, value: str) -> Keys | None:
    key = f"{_POLICY}.model.lora.rank"
    if value == "full":
        return {key: 0}
    return {key: reading.job.adapter.r if reading.job.adapter else 32} if value == "lora" else None


def _micro(reading: Reading, value: int) -> Keys | None:
    origin = reading.job.origins.get("micro_batch_size")
    if origin is not None and origin.key == "trainer.max_tokens_per_microbatch":
        length = reading.job.sequence_length
        return {origin.key: value * length} if length else None
    return {"trainer.micro_train_batch_size_per_gpu": value}


def _attention(reading: Reading, value: str) -> Keys | None:
    flash = {"flash_attention_2": True, "sdpa": False}.get(value)
    return None if flash is None or _megatron(reading) else {"trainer.flash_attn": flash}


def _share(reading: Reading, value: float) -> Keys | None:
    origin = reading.job.origins.get("rl.vllm_gpu_memory_utilization")
    stated = origin.key if origin is not None and origin.kind == "file" else None
    return {stated or "generator.inference_engine.gpu_memory_utilization": value}


VOCABULARY = Vocabulary(
    {
        "adapter.r": f"{_POLICY}.model.lora.rank",
        "rl.completion_length": "generator.sampling_params.max_generate_length",
        "rl.generations": "generator.n_samples_per_prompt",
    },
    {
        "activation_checkpointing": _checkpointing,
        "attention": _attention,
        "micro_batch_size": _micro,
        "method": _method,
        "parallelism.fsdp.offload": _offload,
        "parallelism.fsdp.reshard_after_forward": _reshard,
        "rl.vllm_gpu_memory_utilization": _share,
    },
    ignored=frozenset({ACCUMULATION}),
)

describe, edits = said_in(VOCABULARY)
