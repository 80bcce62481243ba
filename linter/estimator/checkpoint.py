"""The quantisation that a checkpoint's own `config.json` states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..job import Quantization

if TYPE_CHECKING:
    from ..models.model import Model


def stored_quantization(model: Model) -> Quantization | None:
    """`quantization_config` as a Quantization; None where the checkpoint is not quantised.

    Keys as transformers/utils/quantization_config.py names them (5.23).
    """
    config = model.config.get("quantization_config")
    if not isinstance(config, dict):
        return None
    method = str(config.get("quant_method", "")).lower()
    skip = _strings(config.get("modules_to_not_convert") or config.get("llm_int8_skip_modules") or config.get("ignore"))
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
    if method == "fp8":
        block = config.get("weight_block_size")
        return Quantization("finegrained-fp8" if block else "fp8", 8, skip=skip)
    if method in ("compressed-tensors", "compressed_tensors", "modelopt"):
        return _compressed(config, skip)
    return None


def _compressed(config: dict[str, Any], skip: list[str]) -> Quantization | None:
    groups = config.get("config_groups")
    for group in groups.values() if isinstance(groups, dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        if not isinstance(weights, dict):
            continue
        bits = _number(weights.get("num_bits")) or 8
        size = _number(weights.get("group_size"))
        if bits == 8:
            return Quantization("fp8" if weights.get("type") == "float" else "int8", 8, skip=skip)
        return Quantization("int4", bits, size, skip=skip)
    return None


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _strings(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
