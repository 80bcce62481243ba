"""The model of a Transformers/TRL config as it is loaded: dtype, bitsandbytes quantisation, PEFT adapter.

Facts from trl 1.16.0 (`trainer/model_config.py`, `trainer/utils.py`, `sft_trainer.py`), transformers 5.23.0
(`modeling_utils.py`, `utils/quantization_config.py`) and peft 0.21.2 (`LoraConfig`); defaults are in `flavours.json`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .peft_types import is_pair, set_named_type
from .training_arguments import mixed_precision

if TYPE_CHECKING:
    from ..core.arguments import Given
    from .training_arguments import Run

_PEFT_SWITCHES = (
    "use_peft", "use_lora", "lora", "enable_lora", "lora_enable", "use_peft_lora", "enable_peft", "do_lora",
)  # fmt: skip
"""Spellings of the switch: TRL's, and those of widely copied scripts (`lora_enable` is LLaVA's)."""

_DOUBLE = ("use_bnb_nested_quant", "bnb_4bit_use_double_quant", "use_nested_quant", "double_quant")
"""TRL's spelling, those of bitsandbytes' config, and the one of the QLoRA paper's script."""

_INTERNVL = ("use_llm_lora", "use_backbone_lora")
"""InternVL's ranks, where 0 is none (`internvl_chat_finetune.py`)."""

_DTYPES = {
    "bfloat16": "bfloat16", "bf16": "bfloat16", "float16": "float16", "fp16": "float16", "half": "float16",
    "float32": "float32", "fp32": "float32", "float": "float32", "float64": "float64",
}  # fmt: skip


def set_dtype(run: Run) -> None:
    """`weights.dtype`: `dtype` (once `torch_dtype`), in a mapping for the model too.

    "auto" and a plain Transformers 5 `from_pretrained` take the checkpoint's own; TRL takes float32.
    """
    given = run.arguments.raw("dtype", "torch_dtype")
    nested = run.arguments.mapping("model_init_kwargs").raw("dtype", "torch_dtype")
    chosen = nested or given
    written = str(chosen.value).removeprefix("torch.") if chosen and chosen.value is not None else None
    default = run.defaults["dtype"]
    if chosen and written == "auto":
        run.builder.from_entry("weights.dtype", None, chosen.entry, chosen.key, "the checkpoint's own dtype")
    elif chosen and written in _DTYPES:
        run.put("weights.dtype", chosen, _DTYPES[written])
    elif default == "precision":
        dtype, flag = mixed_precision(run)
        if flag:
            run.put("weights.dtype", flag, dtype or "bfloat16")
        else:
            run.builder.default("weights.dtype", dtype or "bfloat16")
    elif default == "checkpoint":
        run.builder.default("weights.dtype", None, f"the checkpoint's own: default of {run.builder.upstream}")
    else:
        run.builder.default("weights.dtype", default)


def set_method(run: Run) -> None:
    """`full` or `lora`: TRL's `use_peft`, other programs' switches, and LoRA keys without a switch elsewhere."""
    mode = run.arguments.text("train_mode", "peft_method")
    if mode and mode.value in ("full", "none", "lora", "alora", "qlora", "pt"):
        run.put("method", mode, "full" if mode.value in ("full", "none") else "lora")
        return
    if run.defaults.get("method"):
        run.builder.default("method", "lora", f"{run.defaults['method']}: default of {run.builder.upstream}")
        return
    switch = next((g for name in _PEFT_SWITCHES if (g := run.arguments.flag(name))), None)
    quantized = run.arguments.flag("use_qlora")
    if quantized and quantized.value:
        run.put("method", quantized, "lora")
    elif switch:
        run.put("method", switch, "lora" if switch.value else "full")
    elif run.builder.upstream.startswith("trl") and run.defaults.get("switch", True):
        run.builder.default("method", "full", f"use_peft is off: default of {run.builder.upstream}")
    else:
        sign = run.arguments.raw("lora_r", "lora_rank", "lora_target_modules", "peft_type", *_INTERNVL)
        if sign and sign.value:
            run.put("method", sign, "lora", f"{sign.key} is a LoRA key")
        else:
            run.builder.default("method", "full")


def set_quantization(run: Run) -> None:
    """bitsandbytes: `load_in_4bit`, `load_in_8bit`, QLoRA switches."""
    four = run.arguments.flag("load_in_4bit", "use_qlora", "q_lora", "use_4bit_quantization")
    eight = run.arguments.flag("load_in_8bit", "use_8bit_quantization")
    bits = run.arguments.integer("bits")  # qlora.py's and LLaVA's, where 16 is none
    if bits and bits.value == 4:
        four = bits
    elif bits and bits.value == 8:
        eight = bits
    mode = run.arguments.text("train_mode")
    plugin = run.arguments.raw("bnb_qlora")
    kind = _accelerated(plugin)[0]
    if plugin and kind in ("nf4", "fp4"):
        run.put("weights.quantization.method", plugin, f"bnb-{kind}")
        run.put("weights.quantization.bits", plugin, 4)
        run.builder.default("weights.quantization.double_quant", run.defaults["double_quant"])
    elif four and four.value:
        _put_four_bit(run, four)
    elif mode and mode.value == "qlora":
        _put_four_bit(run, mode)
    elif run.defaults.get("method") == "qlora" and not mode:
        note = f"qlora: default of {run.builder.upstream}"
        run.builder.default("weights.quantization.method", f"bnb-{run.defaults['quant_type']}", note)
        run.builder.default("weights.quantization.bits", 4, note)
        run.builder.default("weights.quantization.double_quant", run.defaults["double_quant"])
    elif eight and eight.value:
        run.put("weights.quantization.method", eight, "bnb-int8")
        run.put("weights.quantization.bits", eight, 8)
    else:
        run.builder.default("weights.quantization", None)


def _accelerated(plugin: Given | None) -> tuple[Any, ...]:
    """fms-acceleration's `bnb_qlora`: the type, and whether PEFT's preparation is left to the trainer."""
    value = plugin.value if plugin else None
    return (*value, None, None)[:2] if isinstance(value, list) else (value, None)


def _put_four_bit(run: Run, given: Given) -> None:
    builder = run.builder
    kind = run.arguments.text("bnb_4bit_quant_type", "quant_type")
    if kind and kind.value in ("nf4", "fp4"):
        run.put("weights.quantization.method", kind, f"bnb-{kind.value}")
    else:
        note = f"{run.defaults['quant_type']}: default of {builder.upstream}"
        run.put("weights.quantization.method", given, f"bnb-{run.defaults['quant_type']}", note)
    run.put("weights.quantization.bits", given, 4)
    double = run.arguments.flag(*_DOUBLE)
    if double:
        run.put("weights.quantization.double_quant", double)
    else:
        builder.default("weights.quantization.double_quant", run.defaults["double_quant"])
    storage = run.arguments.text("bnb_4bit_quant_storage", "bnb_4bit_quant_storage_dtype")
    if storage:
        name = storage.value.removeprefix("torch.")
        run.put("weights.quantization.storage_dtype", storage, _DTYPES.get(name, name))
    else:
        builder.default("weights.quantization.storage_dtype", None)


def set_adapter(run: Run) -> None:
    """The LoRA adapter (TRL's ModelConfig keys and their common other spellings)."""
    if run.builder.job.method != "lora":
        run.builder.derived("adapter", None, "no adapter", "method")
        return
    builder, defaults, arguments = run.builder, run.defaults, run.arguments
    dora = arguments.flag("use_dora")
    if dora and dora.value:
        run.put("adapter.type", dora, "dora")
    else:
        builder.derived("adapter.type", "lora", "LoRA", "method")
    for path, names, default in (
        ("adapter.r", ("lora_r", "lora_rank", *_INTERNVL, "r"), defaults["lora_r"]),
        ("adapter.alpha", ("lora_alpha",), defaults["lora_alpha"]),
        ("adapter.dropout", ("lora_dropout",), defaults["lora_dropout"]),
    ):
        given = arguments.integer(*names, least=1) if path == "adapter.r" else arguments.number(*names)
        if given:
            run.put(path, given)
        else:
            builder.default(path, default)
    _set_targets(run)
    parameters = arguments.words("lora_target_parameters", "target_parameters")
    if parameters:
        run.put("adapter.parameters", parameters)
    named = arguments.text("peft_type")
    prompts = arguments.text("peft_method")
    if prompts and prompts.value == "pt":
        set_named_type(run, prompts._replace(value="prompt_tuning"))
    elif named and not is_pair(named.value):
        set_named_type(run, named)
    exclude = arguments.words("lora_exclude_modules", "exclude_modules")
    if exclude:
        run.put("adapter.exclude", exclude)
    saved = arguments.words("lora_modules_to_save", "modules_to_save")
    if saved:
        run.put("adapter.modules_to_save", saved)
    else:
        builder.default("adapter.modules_to_save", [])
    _set_adapter_dtypes(run)


def _set_targets(run: Run) -> None:
    given = run.arguments.words("lora_target_modules", "lora_target", "target_modules")
    if given is None and "lora_rank" in run.arguments:
        given = run.arguments.words("trainable")  # Chinese-LLaMA-Alpaca run_clm_sft_with_peft.py
    internvl = next((g for name in _INTERNVL if (g := run.arguments.integer(name, least=1))), None)
    if given is None and internvl:
        run.put("adapter.targets", internvl, "all-linear", "attention and MLP of what it adapts")
    elif given is None:
        note = "" if run.defaults["lora_targets"] else "what PEFT targets in this architecture"
        run.builder.default("adapter.targets", run.defaults["lora_targets"], note)
    elif given.value in (["all-linear"], ["all"]):
        run.put("adapter.targets", given, "all-linear")
    else:
        run.put("adapter.targets", given)


def _set_adapter_dtypes(run: Run) -> None:
    """What happens to dtypes around a quantised base: PEFT's k-bit preparation, TRL's cast of adapters to bf16."""
    builder, quantization = run.builder, run.builder.job.weights.quantization
    kbit = run.defaults["prepare_kbit"]
    plugin = run.arguments.raw("bnb_qlora")
    left = plugin is not None and _accelerated(plugin)[1] in (True, "True", "true")
    bfloat16 = mixed_precision(run)[0] == "bfloat16"
    four = quantization is not None and quantization.bits == 4
    casts = bool(run.defaults.get("kbit_adapter_dtype")) and quantization is not None
    if kbit == "8bit":
        casts = casts and four and bfloat16
    if plugin is not None and left:
        run.put("adapter.prepare_kbit", plugin, True, "its trainer prepares the model (no_peft_model)")
        run.put("adapter.prepared_head", plugin, "bfloat16", "its trainer prepares the model (no_peft_model)")
    else:
        builder.default("adapter.prepare_kbit", bool(kbit) and quantization is not None)
    if casts and kbit:
        note = f"{builder.upstream} takes embeddings and head back to bfloat16 (peft_module_casting_to_bf16)"
        builder.derived("adapter.prepared_head", "bfloat16", note, "weights.quantization.method")
    if casts:
        note = f"{builder.upstream} casts adapters over a quantised base to bfloat16"
        builder.derived("adapter.dtype", run.defaults["kbit_adapter_dtype"], note, "weights.quantization.method")
    else:
        builder.default("adapter.dtype", None, "as PEFT chooses")
