"""Job changes in the words of torchtune recipes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.key_changes import Keys, edits_of, present, spoken
from .model import builders

if TYPE_CHECKING:
    from ...source.edit.replacement import Edit
    from ..core.format import Reading

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

_DTYPES = {"bfloat16": "bf16", "float32": "fp32"}

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
        elif path == "optimizer.in_backward" and value:
            wanted.update({"optimizer_in_bwd": True, "clip_grad_norm": None})
        elif path == "weights.dtype" and value in _DTYPES:
            wanted["dtype"] = _DTYPES[value]
        elif path == "parallelism.fsdp.sharding" and value == "full_shard" and reading.job.parallelism.fsdp:
            wanted["fsdp_reshard_after_forward"] = True
        elif path == "weights.quantization.method" and _can_be_nf4(reading, value):
            wanted["model.quantize_base"] = True
        elif path in ("loss.chunk", "loss.logits", "loss.upcast"):
            continue
        else:
            return None
    return present(reading.config, wanted)


def _can_be_8bit(reading: Reading, name: Any) -> bool:
    """bitsandbytes' optimizers do not take the DTensors of FSDP2."""
    return name in _OPTIMIZERS and (name == "sgd" or reading.job.parallelism.fsdp is None)


def _can_be_nf4(reading: Reading, method: Any) -> bool:
    """The builders with LoRA pack the base with torchao's NF4, which is made from bf16 weights."""
    job = reading.job
    return method in ("bnb-nf4", "torchao-nf4") and job.method == "lora" and job.weights.dtype == "bfloat16"


def _adapter(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """The keys of a builder with LoRA in place of the file's, and the recipe that trains it; None where there is none.

    The recipe stands in the `tune run` command, which no edit of the file changes.
    """
    quantized = changes.get("weights.quantization.method")
    named = reading.config.root.find("model._component_")
    if set(changes) - {"method", "weights.quantization.method"} or changes.get("method") != "lora" or named is None:
        return None
    package, _, name = str(named.value.value).rpartition(".")
    packed = f"{package}.qlora_{name}" if quantized else ""
    builder = packed if packed in builders() else f"{package}.lora_{name}"
    if builder not in builders():
        return None
    single = reading.job.parallelism.fsdp is None
    return {
        "recipe": f"lora_finetune_{'single_device' if single else 'distributed'}",
        "model._component_": builder,
        "model.lora_attn_modules": ["q_proj", "k_proj", "v_proj", "output_proj"],
        "model.apply_lora_to_mlp": True,
        **({"model.quantize_base": True} if quantized and builder != packed else {}),
    }


def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
    """The change as keys; LoRA in a full fine-tune with the recipe that it needs."""
    return spoken(keys_for(reading, changes) or _adapter(reading, changes))


def edits(reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:
    """The edits that make the change; None when torchtune cannot say it or the file cannot be edited safely."""
    return edits_of(reading.config, keys_for(reading, changes))
