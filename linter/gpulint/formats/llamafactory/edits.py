"""Job changes in the words of LLaMA-Factory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..accelerate.elsewhere import writer
from ..core.arguments import Arguments
from ..core.backends.deepspeed import chooses_file, zero_keys
from ..core.key_changes import OFFLOADS, ZERO, Keys, present, trainer_offload
from .megatron import is_megatron

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.format import Reading

    Say = Callable[[Reading, dict[str, Any]], Keys | None]

_PLAIN = {
    "micro_batch_size": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "sequence_length": "cutoff_len",
    "packing": "packing",
}
"""Job fields that one key says."""

_ENGINE = {
    "inference.max_model_len": "vllm_maxlen",
    "inference.gpu_memory_utilization": "vllm_gpu_util",
    "inference.enforce_eager": "vllm_enforce_eager",
    "inference.kv_cache_dtype": "vllm_config.kv_cache_dtype",
    "inference.max_num_seqs": "vllm_config.max_num_seqs",
    "inference.max_num_batched_tokens": "vllm_config.max_num_batched_tokens",
}
"""The same for `infer_backend: vllm`."""

_SWITCHES = ("use_galore", "use_apollo", "use_badam", "use_adam_mini", "use_muon")
"""Keys that put another optimizer in the place of `optim`."""

_ATTENTION = {"flash_attention_2": "fa2", "flash_attention_3": "fa3", "sdpa": "sdpa", "eager": "disabled"}

_DEEPSPEED_FILES = {
    (0, False): "examples/deepspeed/ds_z0_config.json",
    (2, False): "examples/deepspeed/ds_z2_config.json",
    (2, True): "examples/deepspeed/ds_z2_offload_config.json",
    (3, False): "examples/deepspeed/ds_z3_config.json",
    (3, True): "examples/deepspeed/ds_z3_offload_config.json",
}
"""(stage, offload) -> the file LLaMA-Factory ships; stage 3 with offload offloads optimizer and parameters."""


def keys_for(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """The keys that make a change; None when LLaMA-Factory cannot say a part of it."""
    wanted: Keys = {}
    if reading.job.kind == "inference":
        serves = reading.job.get("inference.engine") == "vllm" and all(path in _ENGINE for path in changes)
        return {_ENGINE[path]: value for path, value in changes.items()} if serves else None
    zero = [path for path in changes if path.startswith(ZERO)]
    if zero:
        part = _zero(reading, changes)
        if part is None:
            return None
        wanted.update(part)
    for path, value in changes.items():
        if path in zero:
            continue
        say = _SAY.get(path)
        part = {_PLAIN[path]: value} if path in _PLAIN else say(reading, changes) if say else None
        if part is None:
            return None
        wanted.update(part)
    return present(reading.config, wanted)


def _zero(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """A shipped DeepSpeed file; keys of the mapping where the file holds one."""
    if _is_megatron(reading):
        return None
    entry = reading.config.root.entry("deepspeed")
    if entry is not None and entry.value.is_mapping:
        part = {path: value for path, value in changes.items() if path.startswith(ZERO)}
        return zero_keys(reading.config.root, "deepspeed", part)
    if not chooses_file(changes):
        return None
    zero = reading.job.parallelism.zero
    stage = changes.get(f"{ZERO}stage", zero.stage if zero else 0)
    devices = {changes.get(path, reading.job.get(path) or "none") for path in OFFLOADS}
    if "nvme" in devices:
        return None
    file = _DEEPSPEED_FILES.get((stage, "cpu" in devices))
    if file is None or reading.job.method == "freeze":
        return None
    pure = {"pure_bf16": None, "bf16": True} if stage == 3 and reading.config.root.get("pure_bf16") else {}
    return {"deepspeed": file, "fsdp": None, "fsdp_config": None, **pure}


def _is_megatron(reading: Reading) -> bool:
    return is_megatron(Arguments(reading.config.root))


def _checkpointing(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    value = changes["activation_checkpointing"]
    if _is_megatron(reading):
        return {"recompute_granularity": value if value == "full" else None} if value != "offload" else None
    if value == "full":
        return {"disable_gradient_checkpointing": None, "use_unsloth_gc": None}
    if value == "offload":
        return {"disable_gradient_checkpointing": None, "use_unsloth_gc": True}
    off = {"disable_gradient_checkpointing": True, "gradient_checkpointing": None, "use_unsloth_gc": None}
    return off if value == "none" else None


def _loss(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    fuses = changes["loss.kernel"] == "liger" and reading.job.objective in ("sft", "pretrain")
    return {"enable_liger_kernel": True} if fuses else None


def _attention(_reading: Reading, changes: dict[str, Any]) -> Keys | None:
    name = _ATTENTION.get(changes["attention"])
    return {"flash_attn": name} if name else None


def _dtype(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """Trainable weights stay 16-bit only with `pure_bf16`, which ZeRO-3 refuses."""
    zero = reading.job.parallelism.zero
    if _is_megatron(reading) or reading.job.method != "full":
        return None
    takes = changes["weights.dtype"] == "bfloat16" and not (zero is not None and zero.stage == 3)
    return {"pure_bf16": True, "bf16": None, "fp16": None} if takes else None


def _autocast(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    value = changes["precision.autocast"]
    if reading.job.precision.master_weights or reading.config.root.get("pure_bf16") is not None:
        return None
    if value == "bfloat16":
        return {"bf16": True, "fp16": None}
    return {"fp16": True, "bf16": None} if value == "float16" else {"bf16": None, "fp16": None}


def _method(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """LoRA on all linear layers with rank 16, over a quantised base where the change says so; or a full fine-tune."""
    method = changes.get("method", reading.job.method)
    packed = changes.get("weights.quantization.method")
    bits = {None: None, "bnb-nf4": 4, "bnb-int8": 8}
    if packed not in bits or method not in ("lora", "full") or (method == "full" and packed):
        return None
    wanted: Keys = {"finetuning_type": method}
    if packed or method == "full":
        wanted["quantization_bit"] = bits[packed]
    if method == "lora" and reading.job.method != "lora":
        wanted |= {"lora_rank": changes.get("adapter.r", 16), "lora_target": "all"}
        wanted |= dict.fromkeys(("use_galore", "use_apollo", "use_badam", "use_llama_pro"))
    return wanted


def _optimizer(_reading: Reading, changes: dict[str, Any]) -> Keys | None:
    return {"optim": changes["optimizer.name"], **dict.fromkeys(_SWITCHES)}


def _rank(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    if reading.job.adapter is None:
        return {} if changes.get("method") == "lora" else None
    return {"lora_rank": changes["adapter.r"]}


def _sharding(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """FSDP as TrainingArguments take it; quantised weights go through accelerate's FSDP only."""
    whole = changes["parallelism.fsdp.sharding"] == "full_shard" and reading.job.weights.quantization is None
    return {"fsdp": "full_shard auto_wrap", "deepspeed": None} if whole and not _is_megatron(reading) else None


def _evaluation(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    value = changes["evaluation.micro_batch_size"]
    return {"per_device_eval_batch_size": value} if reading.job.evaluation.micro_batch_size else None


_SAY: dict[str, Say] = {
    "optimizer.name": _optimizer,
    "adapter.r": _rank,
    "evaluation.micro_batch_size": _evaluation,
    "activation_checkpointing": _checkpointing,
    "loss.kernel": _loss,
    "attention": _attention,
    "weights.dtype": _dtype,
    "precision.autocast": _autocast,
    "parallelism.fsdp.sharding": _sharding,
    "parallelism.fsdp.offload": lambda reading, changes: trainer_offload(
        reading.config.root,
        reading.job.versions.get("transformers", ""),
        changes["parallelism.fsdp.offload"],
    ),
    "method": _method,
    "weights.quantization.method": _method,
}


describe, edits = writer(keys_for)
