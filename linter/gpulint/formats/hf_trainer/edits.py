"""Job changes in the words of Transformers/TRL configs: TRL's keys, or those of the program that reads the file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..accelerate.shipped import shipped
from ..core.backends.deepspeed import chooses_file, inline_deepspeed, zero_keys
from ..core.key_changes import OFFLOADS, ZERO, Keys, present, trainer_offload
from .launch_edits import writer
from .trainer_profiles import Flavour, flavour_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.format import Reading

    Say = Callable[["Words", Any], Keys | None]

_LENGTHS = ("max_length", "max_seq_length", "max_seq_len", "block_size", "model_max_length", "data_max_length")

_PLAIN = {
    "micro_batch_size": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
}
"""Job fields that one key says, whatever program reads the file."""

_ONLINE = {"rl.vllm_gpu_memory_utilization": "vllm_gpu_memory_utilization", "rl.vllm_sleep": "vllm_enable_sleep_mode"}


class Words:
    """One change of one file: what the file is, and all that changes together."""

    def __init__(self, reading: Reading, changes: dict[str, Any]) -> None:
        self.reading = reading
        self.job = reading.job
        self.root = reading.config.root
        self.changes = changes
        self.flavour: Flavour = flavour_of(reading.config, reading.program)

    def spelling(self, *names: str) -> str | None:
        """The first of several spellings that the file uses."""
        return next((name for name in names if self.root.entry(name) is not None), None)

    def keys(self) -> Keys | None:
        """The keys that make the change; None when a part cannot be said."""
        wanted: Keys = {}
        zero = [path for path in self.changes if path.startswith(ZERO)]
        if zero:
            part = self.zero()
            if part is None:
                return None
            wanted.update(part)
        for path, value in self.changes.items():
            if path in zero:
                continue
            say = _SAY.get(path)
            part = {_PLAIN[path]: value} if path in _PLAIN else say(self, value) if say else None
            if part is None:
                return None
            wanted.update(part)
        return present(self.reading.config, wanted)

    def zero(self) -> Keys | None:
        """`deepspeed` as a mapping: TrainingArguments takes one in the place of a path."""
        if self.flavour.name == "open-instruct" or self.launched("parallelism.fsdp"):
            return None
        entry = self.root.entry("deepspeed")
        if entry is not None and entry.value.is_mapping:
            part = {path: value for path, value in self.changes.items() if path.startswith(ZERO)}
            return zero_keys(self.reading.config.root, "deepspeed", part)
        if not chooses_file(self.changes):
            return None
        present_zero = self.job.parallelism.zero
        stage = self.changes.get(f"{ZERO}stage", present_zero.stage if present_zero else 0)
        offloads = {section: self.changes.get(path, self.job.get(path) or "none") for path, section in OFFLOADS.items()}
        if self.shipped_launch():
            return self.shipped(f"zero{stage}" if stage else "multi_gpu", offloads)
        config: Any = inline_deepspeed(stage, offloads)
        if self.reading.config.syntax == "flags":
            config = json.dumps(config)
        return {"deepspeed": config, "fsdp": None, "fsdp_config": None}

    def shipped_launch(self) -> bool:
        """Whether `accelerate_config` names one of the configs that TRL ships."""
        entry = self.root.entry("accelerate_config")
        return entry is not None and shipped(str(entry.value.value)) is not None

    def shipped(self, name: str, offloads: Keys) -> Keys:
        """A config that TRL ships, and options of `accelerate launch` beside it."""
        devices = {f"{section}_device": None if value == "none" else value for section, value in offloads.items()}
        return {"accelerate_config": name, **devices}

    def launched(self, field: str) -> bool:
        """Whether the command that starts the run says how it is sharded, which this file cannot take back."""
        own = {"parallelism.fsdp": "fsdp", "parallelism.zero": "deepspeed"}[field]
        return self.job.get(field) is not None and self.reading.program != "" and self.root.entry(own) is None

    def peft(self) -> Keys | None:
        """LoRA on all linear layers with rank 16, over a quantised base where the change says so; or no adapter."""
        method = self.changes.get("method", self.job.method)
        packed = self.changes.get("weights.quantization.method")
        if packed not in (None, "bnb-nf4", "bnb-int8") or method not in ("lora", "full"):
            return None
        name = self.flavour.name
        if name == "firefly":
            mode = {None: method, "bnb-nf4": "qlora"}.get(packed)
            return {"train_mode": mode} if mode else None
        if name == "open-instruct":
            if packed == "bnb-int8":
                return None
            return {"use_lora": method == "lora", "use_qlora": True if packed else None}
        if not self.flavour.trl:
            return None
        if method == "full":
            return {"use_peft": False, "load_in_4bit": None, "load_in_8bit": None}
        wanted: Keys = {"use_peft": True}
        if self.job.method != "lora":
            rank = self.changes.get("adapter.r", 16)
            wanted |= {"lora_r": rank, "lora_alpha": 2 * rank, "lora_target_modules": "all-linear"}
        if packed:
            four = packed == "bnb-nf4"
            wanted |= {"load_in_4bit": True if four else None, "load_in_8bit": None if four else True}
        return wanted


def _length(words: Words, value: int) -> Keys | None:
    if words.job.objective in ("grpo", "rloo", "ppo"):
        return None
    name = words.spelling(*_LENGTHS) or ("max_length" if words.flavour.trl else None)
    return {name: value} if name else None


def _packing(words: Words, value: bool) -> Keys | None:
    return {"packing": value} if words.flavour.trl and words.job.objective == "sft" else None


def _checkpointing(words: Words, value: str) -> Keys | None:
    name = words.spelling("activation_checkpointing", "gradient_checkpointing") or "gradient_checkpointing"
    if value == "offload":
        offers = words.flavour.trl and words.job.objective in ("sft", "dpo", "kto", "reward")
        return {name: True, "activation_offloading": True} if offers else None
    if value in ("full", "none"):
        return {name: value == "full", "activation_offloading": None}
    return None


def _optimizer(words: Words, value: str) -> Keys | None:
    if words.flavour.name == "open-instruct":
        return {"use_8bit_optimizer": True} if value == "adamw_8bit" else None
    return {"optim": value}


def _loss(words: Words, value: str) -> Keys | None:
    """Liger fuses head and loss; TRL 1.16 computes them in tiles anyway and refuses it."""
    takes = words.flavour.name not in ("trl", "firefly") and words.job.objective in ("sft", "pretrain")
    return {"use_liger_kernel": True} if value == "liger" and takes else None


def _attention(words: Words, value: str) -> Keys | None:
    if words.flavour.name == "firefly":
        return None
    if words.flavour.name == "open-instruct":
        return {"use_flash_attn": value == "flash_attention_2"} if value in ("flash_attention_2", "sdpa") else None
    name = "flex_attention" if value == "flex" else value
    return {"attn_implementation": name, "use_flash_attention_2": None}


def _dtype(words: Words, value: str) -> Keys | None:
    kwargs = words.root.get("model_init_kwargs")
    nested = next((name for name in ("dtype", "torch_dtype") if kwargs is not None and kwargs.get(name)), None)
    if nested:
        return {f"model_init_kwargs.{nested}": value}
    name = words.spelling("dtype", "torch_dtype")
    if name is None and words.flavour.trl:
        name = "dtype" if words.flavour.name == "trl" else "torch_dtype"
    return {name: value} if name else None


def _autocast(words: Words, value: str | None) -> Keys | None:
    if words.job.parallelism.zero is not None:
        return None
    if value == "bfloat16":
        return {"bf16": True, "fp16": None}
    return {"fp16": True, "bf16": None} if value == "float16" else {"bf16": False, "fp16": None}


def _rank(words: Words, value: int) -> Keys | None:
    if words.changes.get("method") == "lora" and words.job.method != "lora":
        return {}
    if words.job.adapter is None:
        return None
    name = words.spelling("lora_r", "lora_rank") or ("lora_r" if words.flavour.trl else None)
    return {name: value} if name else None


def _fsdp(words: Words, value: str) -> Keys | None:
    """FSDP2, which shards parameters, gradients and states; older Transformers take it as words."""
    if value != "full_shard" or words.flavour.name == "open-instruct" or words.launched("parallelism.zero"):
        return None
    if words.shipped_launch():
        return words.shipped("fsdp2", {"offload_optimizer": "none", "offload_param": "none"})
    if words.flavour.name in ("trl", "transformers") and words.reading.config.syntax != "flags":
        return {"fsdp": True, "fsdp_config": {"version": 2, "reshard_after_forward": True}, "deepspeed": None}
    return {"fsdp": "full_shard auto_wrap", "fsdp_config": None, "deepspeed": None}


def _evaluation(words: Words, value: int) -> Keys | None:
    return {"per_device_eval_batch_size": value} if words.job.evaluation.micro_batch_size else None


def _precompute(words: Words, value: bool) -> Keys | None:
    offers = words.flavour.trl and words.job.objective in ("dpo", "kto")
    return {"precompute_ref_log_probs": value} if offers else None


def _rollout(path: str) -> Say:
    def say(words: Words, value: Any) -> Keys | None:
        return {_ONLINE[path]: value} if words.flavour.trl and words.job.rl.vllm == "colocate" else None

    return say


def _peft(words: Words, _value: str) -> Keys | None:
    return words.peft()


_SAY: dict[str, Say] = {
    "sequence_length": _length,
    "packing": _packing,
    "activation_checkpointing": _checkpointing,
    "optimizer.name": _optimizer,
    "loss.kernel": _loss,
    "attention": _attention,
    "weights.dtype": _dtype,
    "precision.autocast": _autocast,
    "method": _peft,
    "weights.quantization.method": _peft,
    "adapter.r": _rank,
    "parallelism.fsdp.sharding": _fsdp,
    "parallelism.fsdp.offload": lambda words, value: trainer_offload(
        words.root, words.job.versions.get("transformers", ""), value
    ),
    "evaluation.micro_batch_size": _evaluation,
    "rl.precompute_reference": _precompute,
    **{path: _rollout(path) for path in _ONLINE},
}


describe, edits = writer(lambda reading, changes: Words(reading, changes).keys(), files=True)
