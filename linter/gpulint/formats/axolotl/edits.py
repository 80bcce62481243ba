"""Job changes in the words of axolotl: the keys to write and the keys to take out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.backends.deepspeed import chooses_file, inline_deepspeed, zero_keys
from ..core.key_changes import ZERO, Keys
from ..hf_trainer.launch_edits import writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...source.node import Node
    from ..core.format import Reading

LIGER_PLUGIN = "axolotl.integrations.liger.LigerPlugin"
CUT_PLUGIN = "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"

_LOSS_KEYS = ("cut_cross_entropy", "chunked_cross_entropy", "liger_cross_entropy", "liger_fused_linear_cross_entropy")
_ATTENTION_FLAGS = (
    "flash_attention", "sdp_attention", "xformers_attention", "flex_attention", "sage_attention", "eager_attention",
)  # fmt: skip
_ATTENTION = {"flex": "flex_attention"}

_DEEPSPEED_FILES = {
    (1, "none", "none"): "deepspeed_configs/zero1.json",
    (2, "cpu", "none"): "deepspeed_configs/zero2.json",
    (3, "none", "none"): "deepspeed_configs/zero3_bf16.json",
    (3, "none", "cpu"): "deepspeed_configs/zero3_bf16_cpuoffload_params.json",
    (3, "cpu", "cpu"): "deepspeed_configs/zero3_bf16_cpuoffload_all.json",
}
"""(stage, optimizer offload, parameter offload) -> the file axolotl 0.19.0 ships; its zero2.json offloads."""

_PLAIN = {
    "micro_batch_size": "micro_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "sequence_length": "sequence_len",
    "packing": "sample_packing",
    "optimizer.name": "optimizer",
    "adapter.r": "lora_r",
    "evaluation.micro_batch_size": "eval_batch_size",
    "rl.precompute_reference": "precompute_ref_log_probs",
    "rl.vllm_gpu_memory_utilization": "vllm.gpu_memory_utilization",
    "rl.vllm_sleep": "trl.vllm_enable_sleep_mode",
    "parallelism.tensor": "tensor_parallel_size",
}
"""Job fields that one key says."""

_NOT_WITH_FSDP2 = frozenset({"adamw_8bit", "adamw_bnb_8bit"})
_NOT_WITH_DEEPSPEED = frozenset(
    {
        "muon", "polora", "q_galore_adamw8bit", "flash_adamw", "flash_adam", "flash_sgd", "flash_sgdw", "flash_lion",
    }
)  # fmt: skip
"""Optimizers that axolotl's validators refuse with FSDP2, and with DeepSpeed."""


def keys_for(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """The keys that make a change; None when axolotl cannot say a part of it."""
    found: Keys = {}
    if any(path in changes for path in ("sequence_length", "packing")) and reading.config.root.get("rl") is not None:
        return None
    zero = {path: value for path, value in changes.items() if path.startswith(ZERO)}
    if zero:
        sharding = _zero(reading, zero)
        if sharding is None:
            return None
        found.update(sharding)
    for path, value in changes.items():
        if path in zero:
            continue
        if path in _PLAIN:
            found[_PLAIN[path]] = value
            continue
        make = _SPECIAL.get(path)
        part = make(reading, changes) if make else None
        if part is None:
            return None
        found.update(part)
    root = reading.config.root
    wanted = {key: value for key, value in found.items() if value is not None or root.find(key) is not None}
    return None if _is_refused(reading, changes, wanted) else wanted


def _is_refused(reading: Reading, changes: dict[str, Any], wanted: Keys) -> bool:
    """Whether axolotl's validators would refuse the file after the change."""
    job = reading.job
    optimizer = changes.get("optimizer.name", job.optimizer.name)
    fsdp2 = wanted.get("fsdp_version") == 2 or (
        job.parallelism.fsdp is not None and job.parallelism.fsdp.version == 2 and "deepspeed" not in wanted
    )
    deepspeed = wanted.get("deepspeed") is not None or (job.parallelism.zero is not None and not fsdp2)
    return (
        (fsdp2 and optimizer in _NOT_WITH_FSDP2)
        or (deepspeed and optimizer in _NOT_WITH_DEEPSPEED)
        or (changes.get("loss.kernel") == "liger" and changes.get("parallelism.tensor", job.parallelism.tensor) > 1)
    )


def _zero(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """A DeepSpeed file that axolotl ships, in place of FSDP; a mapping where it ships none of that kind."""
    zero = reading.job.parallelism.zero
    stage = changes.get(f"{ZERO}stage", zero.stage if zero else 0)
    optimizer = changes.get(f"{ZERO}offload_optimizer.device", zero.offload_optimizer.device if zero else "none")
    parameters = changes.get(f"{ZERO}offload_parameters.device", zero.offload_parameters.device if zero else "none")
    shipped = reading.job.weights.dtype == "bfloat16"
    if shipped and stage == 3 and optimizer == "cpu" and f"{ZERO}offload_parameters.device" not in changes:
        parameters = "cpu"  # no shipped file offloads the optimizer alone
    entry = reading.config.root.entry("deepspeed")
    if entry is not None and entry.value.is_mapping:
        return zero_keys(reading.config.root, "deepspeed", changes)
    if not chooses_file(changes):
        return None
    file: Any = _DEEPSPEED_FILES.get((stage, optimizer, parameters))
    if file is not None and "bf16" in file and not shipped:
        file = "deepspeed_configs/zero3.json" if file.endswith("zero3_bf16.json") else None
    if "nvme" in (optimizer, parameters):
        return None
    if file is None:
        file = inline_deepspeed(stage, {"offload_optimizer": optimizer, "offload_param": parameters})
    fsdp = ("fsdp", "fsdp_config", "fsdp_version", "fsdp_final_state_dict_type", "dp_shard_size", "dp_replicate_size")
    return {"deepspeed": file, **dict.fromkeys(fsdp)}


def _checkpointing(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    value = changes["activation_checkpointing"]
    if value == "full":
        return {"gradient_checkpointing": True, "activation_offloading": None, "selective_checkpointing": None}
    if value == "offload":
        return {"gradient_checkpointing": True, "activation_offloading": True, "selective_checkpointing": None}
    if value == "none":
        off: Keys = {"gradient_checkpointing": False, "activation_offloading": None, "selective_checkpointing": None}
        return {**off, **dict.fromkeys(_fsdp_keys(reading, "activation_checkpointing"), False)}
    return None


def _fsdp_keys(reading: Reading, name: str) -> list[str]:
    """The places of an FSDP key that the file has, with and without prefix."""
    places = (f"fsdp_config.{name}", f"fsdp_config.fsdp_{name}")
    return [place for place in places if reading.config.root.find(place) is not None]


def _loss(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """One loss kernel and no other; the cut cross entropy plugin is on unless its key says no.

    Cut cross entropy wants bf16 or fp16 written down (`check_dtype_is_half` runs before defaults are filled in).
    """
    kernel = changes["loss.kernel"]
    keys: Keys = dict.fromkeys(_LOSS_KEYS)
    if _has_plugin(reading, CUT_PLUGIN):
        keys["cut_cross_entropy"] = False
    if kernel == "liger":
        if reading.job.objective == "dpo":
            return {"dpo_use_liger_kernel": True}
        if reading.job.objective == "grpo":
            return {"trl.use_liger_loss": True}
        return {**keys, **_plugin(reading, LIGER_PLUGIN), "liger_fused_linear_cross_entropy": True}
    if kernel == "cut_cross_entropy":
        stated = any(reading.config.root.find(key) is not None for key in ("bf16", "fp16"))
        precision = {} if stated else {"bf16": "auto"}
        return {**keys, **_plugin(reading, CUT_PLUGIN), "cut_cross_entropy": True, **precision}
    if kernel == "chunked":
        return {**keys, "chunked_cross_entropy": True}
    return None


def _plugin(reading: Reading, plugin: str) -> Keys:
    """`plugins` with one more, those that are there kept."""
    return {} if _has_plugin(reading, plugin) else {"plugins": [*_plugins(reading), plugin]}


def _has_plugin(reading: Reading, plugin: str) -> bool:
    name = plugin.rpartition(".")[2]
    return any(isinstance(item, str) and item.endswith(f".{name}") for item in _plugins(reading))


def _plugins(reading: Reading) -> list[Any]:
    node: Node | None = reading.config.root.get("plugins")
    return [item.value for item in node.items()] if node is not None else []


def _attention(_reading: Reading, changes: dict[str, Any]) -> Keys | None:
    name = changes["attention"]
    return {**dict.fromkeys(_ATTENTION_FLAGS), "attn_implementation": _ATTENTION.get(name, name)}


def _dtype(_reading: Reading, changes: dict[str, Any]) -> Keys | None:
    value = changes.get("weights.dtype") or changes.get("precision.autocast")
    if value == "bfloat16":
        return {"bf16": True, "fp16": None, "float32": None}
    return {"bf16": False, "fp16": True} if value == "float16" else None


def _method(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """LoRA on all linear layers, rank 16; QLoRA with 4-bit quantisation; or no adapter."""
    method = changes.get("method", reading.job.method)
    quantization = changes.get("weights.quantization.method")
    if method == "full":
        return None if quantization else {"adapter": None, "load_in_4bit": None, "load_in_8bit": None}
    if method != "lora" or quantization not in (None, "bnb-nf4", "bnb-int8"):
        return None
    keys: Keys = {"adapter": "qlora" if quantization == "bnb-nf4" else "lora"}
    if quantization == "bnb-nf4":
        keys.update({"load_in_4bit": True, "load_in_8bit": None})
        fsdp = reading.job.parallelism.fsdp
        if fsdp is not None and fsdp.version == 2 and fsdp.cpu_ram_efficient_loading:
            keys.update(dict.fromkeys(_fsdp_keys(reading, "cpu_ram_efficient_loading"), False))
    elif quantization == "bnb-int8":
        keys.update({"load_in_8bit": True, "load_in_4bit": None})
    if reading.job.adapter is None:
        rank = changes.get("adapter.r", 16)
        keys.update({"lora_r": rank, "lora_alpha": 2 * rank, "lora_target_linear": True, "unfrozen_parameters": None})
    return keys


def _sharding(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """FSDP2, which shards everything and gathers a layer at a time."""
    if changes["parallelism.fsdp.sharding"] != "full_shard":
        return None
    wanted: Keys = {"fsdp_version": 2, "fsdp": None, "deepspeed": None}
    if reading.job.parallelism.fsdp is None:
        wanted["fsdp_config"] = {
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "reshard_after_forward": True,
            "state_dict_type": "FULL_STATE_DICT",
        }
    else:
        wanted["fsdp_config.reshard_after_forward"] = True
    return wanted


def _offload(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """`offload_params` of the section, spelled as its other keys are."""
    if reading.job.parallelism.fsdp is None:
        return None
    value, config = changes["parallelism.fsdp.offload"], reading.config.root.get("fsdp_config")
    prefixed = config is not None and any(str(key).startswith("fsdp_") for key in config.keys())  # noqa: SIM118
    places = _fsdp_keys(reading, "offload_params")
    return {places[0] if places else f"fsdp_config.{'fsdp_' if prefixed else ''}offload_params": value}


_SPECIAL: dict[str, Callable[[Reading, dict[str, Any]], Keys | None]] = {
    "activation_checkpointing": _checkpointing,
    "loss.kernel": _loss,
    "attention": _attention,
    "weights.dtype": _dtype,
    "precision.autocast": _dtype,
    "method": _method,
    "weights.quantization.method": _method,
    "parallelism.fsdp.sharding": _sharding,
    "parallelism.fsdp.offload": _offload,
}


describe, edits = writer(keys_for)
