"""The quantisation of a checkpoint: what its own `config.json` states, else what its repository's name does."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...job.job import Quantization
from .storage import packing

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.model import Model


def stored_quantization(model: Model) -> Quantization | None:
    """`quantization_config` as a Quantization; None where the checkpoint is not quantised.

    Keys as transformers/utils/quantization_config.py names them (5.23); `modelopt` as hf_quant_config.json does. A
    multimodal model may state it for its text decoder (moonshotai/Kimi-K2.5's config.json).
    """
    config = stated_quantization(model)
    if config is None:
        return None
    method = str(config.get("quant_method", "")).lower()
    if method == "modelopt" and isinstance(config.get("quantization"), dict):
        config = {**config, **config["quantization"]}
    skip = _skip(config)
    if method == "bitsandbytes":
        if config.get("load_in_8bit") or config.get("_load_in_8bit"):
            return Quantization("bnb-int8", 8, skip=skip)
        kind = str(config.get("bnb_4bit_quant_type", "fp4")).lower()
        double = bool(config.get("bnb_4bit_use_double_quant", False))
        return Quantization(f"bnb-{kind}", 4, double_quant=double, skip=skip)
    if method in ("gptq", "awq", "hqq", "aqlm", "eetq", "quanto", "mxfp4"):
        bits = config.get("bits") or config.get("nbits")
        group = config.get("group_size")
        return Quantization(method, _number(bits), _number(group), skip=skip)
    modules = _modules(config, str(model.config.get("expert_dtype") or config.get("expert_dtype") or ""))
    if method == "fbgemm_fp8":
        return Quantization("fp8", 8, skip=skip)
    if method == "fp8":
        block = config.get("weight_block_size")
        return Quantization("finegrained-fp8" if block else "fp8", 8, skip=skip, modules=modules)
    if method in (*COMPRESSED, "modelopt"):
        mixed = modules and str(config.get("quant_algo", "")).upper() == "MIXED_PRECISION"
        skip = [*skip, _unlisted(modules)] if mixed else skip
        found = _compressed(config, skip) or _algorithm(config, skip)
        return replace(found, modules=modules, head="lm_head" in modules) if found is not None else None
    return None


COMPRESSED = ("compressed-tensors", "compressed_tensors")


def compressed(model: Model) -> bool:
    """Whether the checkpoint states the format of compressed-tensors."""
    return str((stated_quantization(model) or {}).get("quant_method", "")).lower() in COMPRESSED


def stated_quantization(model: Model) -> dict[str, Any] | None:
    """`quantization_config` as the config states it, or its text decoder's."""
    text = model.config.get("text_config")
    nested = text.get("quantization_config") if isinstance(text, dict) else None
    config = model.config.get("quantization_config", nested)
    return config if isinstance(config, dict) else None


def named_quantization(job: Job, model: Model) -> Quantization | None:
    """What only the repository's name states, with the method's usual group; None where nothing is known of it.

    `Int8`, `8bit`, `w8a16` give the bits. The `bnb-4bit` repositories of unsloth are NF4 with double quantisation
    (their config.json). Training of all weights starts from a 16-bit copy: packed ones have no gradient.
    """
    method = model.named_quantization
    if method is None or (job.kind == "training" and job.adapter is None):
        return None
    owner, _, name = model.id.lower().rpartition("/")
    found = Quantization(method, _named_bits(name) if method in ("gptq", "awq") else None)
    found.double_quant = method == "bnb-nf4" and owner == "unsloth"
    layout = packing(found)
    if layout is None:
        return None
    found.bits = layout.bits
    return found


def _named_bits(name: str) -> int | None:
    match = re.search(r"(?:int|\bw)([2348])|([2348])-?bit", name)
    return int(match.group(1) or match.group(2)) if match else None


def _compressed(config: dict[str, Any], skip: list[str]) -> Quantization | None:
    """The first group that packs weights (compressed_tensors/quantization/quant_scheme.py).

    4-bit floats in groups of 16 are NVFP4, of 32 MXFP4; integers have a 16-bit scale a group, and zero points only
    when asymmetric.
    """
    groups = config.get("config_groups")
    for group in groups.values() if isinstance(groups, dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        if not isinstance(weights, dict):
            continue
        bits = _number(weights.get("num_bits")) or 8
        size = _number(weights.get("group_size"))
        if weights.get("type") == "float":
            if bits == 4:
                return Quantization("mxfp4-linear" if size == 32 else "nvfp4", 4, size, skip=skip)
            return Quantization("fp8", bits, skip=skip)
        if bits == 8 and size in (None, -1):
            return Quantization("int8", 8, skip=skip)
        kind = "pack-quantized" if weights.get("symmetric", True) else "pack-quantized-asymmetric"
        return Quantization(kind, bits, size, skip=skip)
    return None


def _modules(config: dict[str, Any], experts: str) -> dict[str, str]:
    """Methods of modules that are packed otherwise than the rest, by their names without the layer.

    ModelOpt lists every layer's own (`quantized_layers`); DeepSeek V4 has FP4 experts in blocks of 32 beside fp8 (vLLM
    models/deepseek_v4/quant_config.py; transformers 5.23 integrations/finegrained_fp8.py).
    """
    layers = config.get("quantized_layers")
    found: dict[str, str] = {}
    for name, stated in layers.items() if isinstance(layers, dict) else ():
        own = _algorithm(stated, []) if isinstance(stated, dict) else None
        if own is not None:
            found[re.sub(r"^.*?\.\d+\.", "", str(name))] = own.method
    return found or ({"experts": "mxfp4-linear"} if experts == "fp4" else {})


def _unlisted(modules: dict[str, str]) -> str:
    """A pattern of all modules but these: what ModelOpt's MIXED_PRECISION does not list is not packed.

    Source: vllm model_executor/layers/quantization/modelopt.py `ModelOptMixedPrecisionConfig.get_quant_method`, which
    packs a listed `lm_head` too.
    """
    return rf"re:(?!(?:.*\.)?(?:{'|'.join(map(re.escape, modules))})(?:\.|\Z))"


def _algorithm(config: dict[str, Any], skip: list[str]) -> Quantization | None:
    """ModelOpt's `quant_algo` where no groups are written (vLLM layers/quantization/modelopt.py `QUANT_ALGOS`)."""
    name = str(config.get("quant_algo", "")).upper()
    if "NVFP4" in name:
        return Quantization("nvfp4", 4, 16, skip=skip)
    return Quantization("fp8", 8, skip=skip) if name.startswith("FP8") else None


def _skip(config: dict[str, Any]) -> list[str]:
    keys = ("modules_to_not_convert", "llm_int8_skip_modules", "ignore", "ignored_layers", "exclude_modules")
    return next((found for key in keys if (found := _strings(config.get(key)))), [])


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _strings(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
