"""Job changes in the words of torchtune recipes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .key_changes import Keys, edits_of, present, spoken

if TYPE_CHECKING:
    from ..finding import Edit
    from .format import Reading

_PLAIN = {
    "micro_batch_size": "batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "sequence_length": "tokenizer.max_seq_len",
    "packing": "dataset.packed",
    "adapter.r": "model.lora_rank",
    "compile": "compile",
    "evaluation.micro_batch_size": "batch_size_val",
    "parallelism.tensor": "tensor_parallel_dim",
    "parallelism.fsdp.offload": "fsdp_cpu_offload",
}
"""Job fields that one key says."""

_NO_MODE: Keys = {"ac_mode": None, "ac_option": None}

_CHECKPOINTING: dict[str, Keys] = {
    "none": {"enable_activation_checkpointing": False, "enable_activation_offloading": None},
    "full": {"enable_activation_checkpointing": True, "enable_activation_offloading": None, **_NO_MODE},
    "offload": {"enable_activation_checkpointing": True, "enable_activation_offloading": True, **_NO_MODE},
}  # fmt: skip

_OPTIMIZERS = {
    "adamw_bnb_8bit": "bitsandbytes.optim.AdamW8bit",
    "adamw_8bit": "bitsandbytes.optim.AdamW8bit",
    "paged_adamw_8bit": "bitsandbytes.optim.PagedAdamW8bit",
    "paged_adamw_32bit": "bitsandbytes.optim.PagedAdamW",
    "sgd": "torch.optim.SGD",
}


def keys_for(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """The keys that make a change; None when torchtune cannot say a part of it."""
    wanted: Keys = {}
    for path, value in changes.items():
        if path in _PLAIN:
            wanted[_PLAIN[path]] = value
        elif path == "activation_checkpointing" and value in _CHECKPOINTING:
            wanted.update(_CHECKPOINTING[value])
        elif path == "optimizer.name" and _can_be_8bit(reading, value):
            wanted.update({"optimizer._component_": _OPTIMIZERS[value], "optimizer.fused": None})
        elif path == "loss.kernel" and value in ("chunked", "liger") and reading.job.objective == "sft":
            wanted["loss._component_"] = "torchtune.modules.loss.LinearCrossEntropyLoss"
        elif path in ("loss.chunk", "loss.logits", "loss.upcast"):
            continue
        else:
            return None
    return present(reading.config, wanted)


def _can_be_8bit(reading: Reading, name: Any) -> bool:
    """bitsandbytes' optimizers do not take the DTensors of FSDP2."""
    return name in _OPTIMIZERS and (name == "sgd" or reading.job.parallelism.fsdp is None)


def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
    """The change as keys."""
    return spoken(keys_for(reading, changes))


def edits(reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:
    """The edits that make the change; None when torchtune cannot say it or the file cannot be edited safely."""
    return edits_of(reading.config, keys_for(reading, changes))
