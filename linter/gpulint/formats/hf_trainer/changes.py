"""What rows cannot say of a change of a Transformers/TRL config: it depends on the program that reads the file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..accelerate.shipped import shipped
from ..core.backends.deepspeed import chooses_file, inline_deepspeed, zero_keys
from ..core.bindings.rows import LEAVE
from ..core.key_changes import OFFLOADS, ZERO, trainer_offload
from .trainer_profiles import flavour_of
from .trl import LENGTH_KEYS, ONLINE

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.bindings.rows import Rest, Say
    from ..core.format import Reading
    from ..core.key_changes import Keys
    from .trainer_profiles import Flavour


def _flavour(reading: Reading) -> Flavour:
    return flavour_of(reading.config, reading.program)


def _has(reading: Reading, *names: str) -> bool:
    return any(reading.config.root.find(name) is not None for name in names)


def _where(condition: Callable[[Reading], bool]) -> Say:
    """The rows say it, where the condition holds."""
    return lambda reading, _: LEAVE if condition(reading) else None


def zero(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """`deepspeed` as a mapping: TrainingArguments take one in the place of a path."""
    root, job = reading.config.root, reading.job
    if _flavour(reading).name == "open-instruct" or _launched(reading, "parallelism.fsdp", "fsdp"):
        return None
    entry = root.entry("deepspeed")
    if entry is not None and entry.value.is_mapping:
        return zero_keys(root, "deepspeed", changes)
    if not chooses_file(changes):
        return None
    stage = changes.get(f"{ZERO}stage", job.get(f"{ZERO}stage") or 0)
    offloads = {section: changes.get(path, job.get(path) or "none") for path, section in OFFLOADS.items()}
    if _ships_launch(reading):
        return _shipped(f"zero{stage}" if stage else "multi_gpu", offloads)
    config: Any = inline_deepspeed(stage, offloads)
    config = json.dumps(config) if reading.config.syntax == "flags" else config
    return {"deepspeed": config, "fsdp": None, "fsdp_config": None}


def _ships_launch(reading: Reading) -> bool:
    """Whether `accelerate_config` names one of the configs that TRL ships."""
    entry = reading.config.root.entry("accelerate_config")
    return entry is not None and shipped(str(entry.value.value)) is not None


def _shipped(name: str, offloads: Keys) -> Keys:
    """A config that TRL ships, and options of `accelerate launch` beside it."""
    devices = {f"{section}_device": None if value == "none" else value for section, value in offloads.items()}
    return {"accelerate_config": name, **devices}


def _launched(reading: Reading, field: str, own: str) -> bool:
    """Whether the command that starts the run says how it is sharded, which this file cannot take back."""
    return reading.job.get(field) is not None and reading.program != "" and not _has(reading, own)


def _fsdp(reading: Reading, value: str) -> Keys | None:
    """FSDP2, which shards parameters, gradients and states; older Transformers take it as words."""
    name = _flavour(reading).name
    if value != "full_shard" or name == "open-instruct" or _launched(reading, "parallelism.zero", "deepspeed"):
        return None
    if _ships_launch(reading):
        return _shipped("fsdp2", dict.fromkeys(OFFLOADS.values(), "none"))
    if name in ("trl", "transformers") and reading.config.syntax != "flags":
        return {"fsdp": True, "fsdp_config": {"version": 2, "reshard_after_forward": True}, "deepspeed": None}
    return {"fsdp": "full_shard auto_wrap", "fsdp_config": None, "deepspeed": None}


def peft(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """LoRA on all linear layers with rank 16, over a quantised base where the change says so; or no adapter."""
    job, flavour, rank = reading.job, _flavour(reading), changes.get("adapter.r")
    adapted = job.method == "lora"
    if changes.keys() <= {"adapter.r"} or (rank and adapted):
        known = _has(reading, "lora_r", "lora_rank") or flavour.trl
        own = {"lora_rank" if _has(reading, "lora_rank") and not _has(reading, "lora_r") else "lora_r": rank}
        rest = {path: value for path, value in changes.items() if path != "adapter.r"}
        more = peft(reading, rest) if rest else {}
        return {**more, **own} if known and more is not None and job.adapter is not None else None
    method, packed = changes.get("method", job.method), changes.get("weights.quantization.method")
    if packed not in (None, "bnb-nf4", "bnb-int8") or method not in ("lora", "full"):
        return None
    if flavour.name == "firefly":
        mode = {None: method, "bnb-nf4": "qlora"}.get(packed)
        return {"train_mode": mode} if mode else None
    if flavour.name == "open-instruct":
        return {"use_lora": method == "lora", "use_qlora": True if packed else None} if packed != "bnb-int8" else None
    if not flavour.trl:
        return None
    if method == "full":
        return {"use_peft": False, "load_in_4bit": None, "load_in_8bit": None}
    wanted: Keys = {"use_peft": True}
    if not adapted:
        rank = rank or 16
        wanted |= {"lora_r": rank, "lora_alpha": 2 * rank, "lora_target_modules": "all-linear"}
    if packed:
        bits = {"load_in_4bit": "bnb-nf4", "load_in_8bit": "bnb-int8"}
        wanted |= {key: True if packed == name else None for key, name in bits.items()}
    return wanted


def _length(reading: Reading, value: int) -> Keys | Rest | None:
    if reading.job.objective in ONLINE:
        return None
    if _has(reading, *LENGTH_KEYS):
        return LEAVE
    return {"max_length": value} if _flavour(reading).trl else None


def _checkpointing(reading: Reading, value: str) -> Keys | None:
    name = "activation_checkpointing" if _has(reading, "activation_checkpointing") else "gradient_checkpointing"
    offers = _flavour(reading).trl and reading.job.objective in ("sft", "dpo", "kto", "reward")
    if value == "offload":
        return {name: True, "activation_offloading": True} if offers else None
    return {name: value == "full", "activation_offloading": None} if value in ("full", "none") else None


def _optimizer(reading: Reading, value: str) -> Keys | Rest | None:
    if _flavour(reading).name != "open-instruct":
        return LEAVE
    return {"use_8bit_optimizer": True} if value == "adamw_8bit" else None


def _loss(reading: Reading, value: str) -> Keys | None:
    """Liger fuses head and loss; TRL 1.16 computes them in tiles anyway and refuses it."""
    takes = _flavour(reading).name not in ("trl", "firefly") and reading.job.objective in ("sft", "pretrain")
    return {"use_liger_kernel": True} if value == "liger" and takes else None


def _attention(reading: Reading, value: str) -> Keys | None:
    name = _flavour(reading).name
    if name == "open-instruct" and value in ("flash_attention_2", "sdpa"):
        return {"use_flash_attn": value == "flash_attention_2"}
    if name in ("firefly", "open-instruct"):
        return None
    return {"attn_implementation": "flex_attention" if value == "flex" else value, "use_flash_attention_2": None}


def _dtype(reading: Reading, value: str) -> Keys | Rest | None:
    flavour = _flavour(reading)
    if _has(reading, *(f"{place}{key}" for place in ("model_init_kwargs.", "") for key in ("dtype", "torch_dtype"))):
        return LEAVE
    return {"dtype" if flavour.name == "trl" else "torch_dtype": value} if flavour.trl else None


def _autocast(reading: Reading, value: str | None) -> Keys | None:
    if reading.job.parallelism.zero is not None:
        return None
    if value == "float16":
        return {"fp16": True, "bf16": None}
    return {"bf16": value == "bfloat16", "fp16": None}


def _with_vllm(reading: Reading) -> bool:
    return _flavour(reading).trl and reading.job.rl.vllm == "colocate"


SAYS: dict[str, Say] = {
    "sequence_length": _length,
    "packing": _where(lambda reading: _flavour(reading).trl and reading.job.objective == "sft"),
    "activation_checkpointing": _checkpointing,
    "optimizer.name": _optimizer,
    "loss.kernel": _loss,
    "attention": _attention,
    "weights.dtype": _dtype,
    "precision.autocast": _autocast,
    "parallelism.fsdp.sharding": _fsdp,
    "parallelism.fsdp.offload": lambda reading, value: trainer_offload(
        reading.config.root, reading.job.versions.get("transformers", ""), value
    ),
    "evaluation.micro_batch_size": _where(lambda reading: bool(reading.job.evaluation.micro_batch_size)),
    "rl.precompute_reference": _where(
        lambda reading: _flavour(reading).trl and reading.job.objective in ("dpo", "kto")
    ),
    "rl.vllm_gpu_memory_utilization": _where(_with_vllm),
    "rl.vllm_sleep": _where(_with_vllm),
}
