"""Job changes in the words of AReaL configs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.dotted_edits import ACCUMULATION, Vocabulary, said_in

if TYPE_CHECKING:
    from ..core.format import Reading
    from ..core.key_changes import Keys


def _spelled(reading: Reading, key: str) -> str:
    """Keys of what is trained stand in `actor`, once `model`."""
    if key.startswith("actor.") and reading.config.root.entry("actor") is None:
        return f"model.{key.removeprefix('actor.')}"
    return key


def _megatron(reading: Reading) -> bool:
    return reading.job.framework == "megatron"


def _batch(reading: Reading, value: int) -> Keys | None:
    length = reading.job.sequence_length
    return {"actor.mb_spec.max_tokens_per_mb": value * length} if length else None


def _length(reading: Reading, value: int) -> Keys | None:
    origin = reading.job.origins.get("sequence_length")
    if origin is None or origin.kind != "file" or not origin.key:
        return None
    return {origin.key: value}


def _checkpointing(reading: Reading, value: str) -> Keys | None:
    if value == "none":
        return {"actor.gradient_checkpointing": False}
    if _megatron(reading) and value in ("full", "selective"):
        return {"actor.gradient_checkpointing": True, "actor.megatron.recompute_granularity": value}
    return {"actor.gradient_checkpointing": True} if value == "full" else None


def _method(reading: Reading, value: str) -> Keys | None:
    if value not in ("full", "lora") or _megatron(reading):
        return None
    own = {} if reading.job.method == "lora" else {"actor.lora_rank": 32, "actor.target_modules": ["all-linear"]}
    return {"actor.use_lora": True, **own} if value == "lora" else {"actor.use_lora": False}


def _offload(reading: Reading, value: bool) -> Keys | None:
    return None if _megatron(reading) else {"actor.fsdp.offload_params": value}


def _dtype(_reading: Reading, value: str) -> Keys | None:
    return {"actor.dtype": value} if value in ("bfloat16", "float32", "float16") else None


def _reference(_reading: Reading, value: bool) -> Keys | None:
    return {"ref.offload": True} if not value else None


VOCABULARY = Vocabulary(
    {
        "adapter.r": "actor.lora_rank",
        "attention": "actor.attn_impl",
        "rl.completion_length": "gconfig.max_new_tokens",
        "rl.generations": "gconfig.n_samples",
        "optimizer.between_steps_offloaded": "actor.fsdp.per_layer_optim_step",
    },
    {
        "micro_batch_size": _batch,
        "sequence_length": _length,
        "activation_checkpointing": _checkpointing,
        "method": _method,
        "parallelism.fsdp.offload": _offload,
        "weights.dtype": _dtype,
        "rl.reference_model": _reference,
    },
    spelled=_spelled,
    ignored=frozenset({ACCUMULATION}),
)

describe, edits = said_in(VOCABULARY)
