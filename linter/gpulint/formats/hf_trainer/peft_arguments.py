"""The model of a Transformers/TRL config as it is loaded: dtype, bitsandbytes quantisation, PEFT adapter.

Facts from trl 1.16.0 (`trainer/model_config.py`, `trainer/utils.py`, `sft_trainer.py`), transformers 5.23.0
(`modeling_utils.py`, `utils/quantization_config.py`) and peft 0.21.2 (`LoraConfig`); defaults are in `flavours.json`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.bindings.kinds import FLAG, INTEGER, NUMBER, POSITIVE, TEXT, WORDS
from ..core.bindings.reader import by_program
from ..core.bindings.rows import LEAVE, NEVER, Default, Derived, Fixed, Key, Written, only
from ..core.bindings.spelling import DTYPE
from .peft_types import is_pair, set_named_type
from .training_arguments import mixed_precision

if TYPE_CHECKING:
    from ...job.job import Job
    from ..core.arguments import Given
    from ..core.bindings.reader import Reader
    from ..core.bindings.rows import Row

_PEFT_SWITCHES = (
    "use_peft", "use_lora", "lora", "enable_lora", "lora_enable", "use_peft_lora", "enable_peft", "do_lora",
)  # fmt: skip
"""Spellings of the switch: TRL's, and those of widely copied scripts (`lora_enable` is LLaVA's)."""

_DOUBLE = ("use_bnb_nested_quant", "bnb_4bit_use_double_quant", "use_nested_quant", "double_quant")
"""TRL's spelling, those of bitsandbytes' config, and the one of the QLoRA paper's script."""

_INTERNVL = ("use_llm_lora", "use_backbone_lora")
"""InternVL's ranks, where 0 is none (`internvl_chat_finetune.py`)."""

_DTYPE = ("dtype", "torch_dtype")


def _own(written: Any) -> Any:
    return Written(None, "the checkpoint's own dtype") if written == "auto" else LEAVE


def _set_usual_dtype(reader: Reader) -> None:
    """A plain Transformers 5 `from_pretrained` takes the checkpoint's own; TRL takes float32."""
    usual = reader.defaults["dtype"]
    if reader.has_set("weights.dtype"):
        return
    if usual == "precision":
        dtype, flag = mixed_precision(reader)
        reader.set("weights.dtype", flag, dtype or "bfloat16")
    else:
        own = Default(None, f"the checkpoint's own: default of {reader.upstream}")
        reader.put("weights.dtype", own if usual == "checkpoint" else usual)


WEIGHTS: tuple[Row, ...] = (
    Key("weights.dtype", tuple(f"model_init_kwargs.{key}" for key in _DTYPE), DTYPE, other=_own, adds=False),
    Key("weights.dtype", _DTYPE, DTYPE, other=_own),
    _set_usual_dtype,
)
"""`weights.dtype`: `dtype` (once `torch_dtype`), in a mapping for the model too; "auto" is the checkpoint's own."""


def _by_program(reader: Reader) -> Any:
    method = reader.defaults.get("method")
    return Default("lora", f"{method}: default of {reader.upstream}") if method else LEAVE


def _set_unswitched(reader: Reader) -> None:
    """Without a switch LoRA keys are enough, but for TRL."""
    sign = reader.keys.raw("lora_r", "lora_rank", "lora_target_modules", "peft_type", *_INTERNVL)
    if reader.has_set("method"):
        return
    if reader.upstream.startswith("trl") and reader.defaults.get("switch", True):
        reader.default("method", "full", f"use_peft is off: default of {reader.upstream}")
    elif sign and sign.value:
        reader.set("method", sign, "lora", f"{sign.key} is a LoRA key")
    else:
        reader.default("method", "full")


_MODES = {"full": "full", "none": "full", "lora": "lora", "alora": "lora", "qlora": "lora", "pt": "lora"}

METHOD: tuple[Row, ...] = (
    Key("method", ("train_mode", "peft_method"), TEXT, to=_MODES, back=NEVER),
    Fixed("method", _by_program),
    Key("method", "use_qlora", FLAG, to={True: "lora"}, back=NEVER),
    Key("method", _PEFT_SWITCHES, FLAG, to={True: "lora", False: "full"}),
    _set_unswitched,
)
"""`full` or `lora`: TRL's `use_peft`, other programs' switches, and LoRA keys without a switch elsewhere."""


def set_quantization(reader: Reader) -> None:
    """bitsandbytes: `load_in_4bit`, `load_in_8bit`, QLoRA switches; fms-acceleration's plugin."""
    four = reader.given(FLAG, "load_in_4bit", "use_qlora", "q_lora", "use_4bit_quantization")
    eight = reader.given(FLAG, "load_in_8bit", "use_8bit_quantization")
    bits = reader.given(INTEGER, "bits")  # qlora.py's and LLaVA's, where 16 is none
    four = bits if bits and bits.value == 4 else four
    eight = bits if bits and bits.value == 8 else eight
    mode, plugin, path = reader.given(TEXT, "train_mode"), reader.keys.raw("bnb_qlora"), "weights.quantization."
    kind, usual = _accelerated(plugin)[0], f"bnb-{reader.defaults['quant_type']}"
    if plugin and kind in ("nf4", "fp4"):
        reader.set(f"{path}method", plugin, f"bnb-{kind}")
        reader.set(f"{path}bits", plugin, 4)
        reader.default(f"{path}double_quant", reader.defaults["double_quant"])
    elif (four and four.value) or (mode and mode.value == "qlora"):
        given = four if four and four.value else mode
        reader.bind(_BNB)
        if not reader.has_set(f"{path}method"):
            note = f"{reader.defaults['quant_type']}: default of {reader.upstream}"
            reader.set(f"{path}method", given, usual, note)
        reader.set(f"{path}bits", given, 4)
    elif reader.defaults.get("method") == "qlora" and not mode:
        note = f"qlora: default of {reader.upstream}"
        reader.default(f"{path}method", usual, note)
        reader.default(f"{path}bits", 4, note)
        reader.default(f"{path}double_quant", reader.defaults["double_quant"])
    elif eight and eight.value:
        reader.set(f"{path}method", eight, "bnb-int8")
        reader.set(f"{path}bits", eight, 8)
    else:
        reader.default("weights.quantization", None)


_BNB = (
    Key(
        "weights.quantization.method", ("bnb_4bit_quant_type", "quant_type"), TEXT,
        to={"nf4": "bnb-nf4", "fp4": "bnb-fp4"},
    ),
    Key("weights.quantization.double_quant", _DOUBLE, FLAG, by_program("double_quant")),
    Key(
        "weights.quantization.storage_dtype", ("bnb_4bit_quant_storage", "bnb_4bit_quant_storage_dtype"), DTYPE, None,
        other=lambda written: written.removeprefix("torch."),
    ),
)  # fmt: skip


def _accelerated(plugin: Given | None) -> tuple[Any, ...]:
    """fms-acceleration's `bnb_qlora`: the type, and whether PEFT's preparation is left to the trainer."""
    value = plugin.value if plugin else None
    return (*value, None, None)[:2] if isinstance(value, list) else (value, None)


def _has_lora(job: Job) -> bool:
    return job.method == "lora"


def _targets(reader: Reader) -> Default:
    usual = reader.defaults["lora_targets"]
    return Default(usual, "" if usual else "what PEFT targets in this architecture")


def _all_linear(names: list[str], _job: Job) -> Any:
    return "all-linear" if names in (["all-linear"], ["all"]) else names


def _set_prepared_trainable(reader: Reader) -> None:
    """Chinese-LLaMA-Alpaca run_clm_sft_with_peft.py: `trainable` names targets beside `lora_rank`."""
    if "lora_rank" in reader.keys:
        reader.bind((Key("adapter.targets", "trainable", WORDS, to=_all_linear),))


def _set_type(reader: Reader) -> None:
    named, prompts = reader.given(TEXT, "peft_type"), reader.given(TEXT, "peft_method")
    if prompts and prompts.value == "pt":
        set_named_type(reader, prompts._replace(value="prompt_tuning"))
    elif named and not is_pair(named.value):
        set_named_type(reader, named)


def _set_adapter_dtypes(reader: Reader) -> None:
    """What happens to dtypes around a quantised base: PEFT's k-bit preparation, TRL's cast of adapters to bf16."""
    quantization, kbit, plugin = reader.job.weights.quantization, reader.defaults["prepare_kbit"], None
    if _accelerated(reader.keys.raw("bnb_qlora"))[1] in (True, "True", "true"):
        plugin = reader.keys.raw("bnb_qlora")
    casts = bool(reader.defaults.get("kbit_adapter_dtype")) and quantization is not None
    if kbit == "8bit":
        four = quantization is not None and quantization.bits == 4
        casts = casts and four and mixed_precision(reader)[0] == "bfloat16"
    if plugin is not None:
        reader.set("adapter.prepare_kbit", plugin, True, "its trainer prepares the model (no_peft_model)")
        reader.set("adapter.prepared_head", plugin, "bfloat16", "its trainer prepares the model (no_peft_model)")
    else:
        reader.default("adapter.prepare_kbit", bool(kbit) and quantization is not None)
    if casts and kbit:
        note = f"{reader.upstream} takes embeddings and head back to bfloat16 (peft_module_casting_to_bf16)"
        reader.derived("adapter.prepared_head", "bfloat16", note, "weights.quantization.method")
    if casts:
        note = f"{reader.upstream} casts adapters over a quantised base to bfloat16"
        reader.derived("adapter.dtype", reader.defaults["kbit_adapter_dtype"], note, "weights.quantization.method")
    else:
        reader.default("adapter.dtype", None, "as PEFT chooses")


ADAPTER: tuple[Row, ...] = (
    Fixed("adapter", Derived(None, "no adapter", "method"), when=lambda job: not _has_lora(job)),
    *only(
        _has_lora,
        Key("adapter.type", "use_dora", FLAG, Derived("lora", "LoRA", "method"), {True: "dora"}, NEVER),
        Key("adapter.r", ("lora_r", "lora_rank", *_INTERNVL, "r"), POSITIVE, by_program("lora_r")),
        Key("adapter.alpha", "lora_alpha", NUMBER, by_program("lora_alpha"), back=NEVER),
        Key("adapter.dropout", "lora_dropout", NUMBER, by_program("lora_dropout"), back=NEVER),
        Key(
            "adapter.targets", ("lora_target_modules", "lora_target", "target_modules"), WORDS, to=_all_linear,
            back=NEVER,
        ),
        _set_prepared_trainable,
        Key(
            "adapter.targets", _INTERNVL, POSITIVE, _targets, lambda *_: "all-linear", NEVER,
            note="attention and MLP of what it adapts",
        ),
        Key("adapter.parameters", ("lora_target_parameters", "target_parameters"), WORDS, back=NEVER),
        _set_type,
        Key("adapter.exclude", ("lora_exclude_modules", "exclude_modules"), WORDS, back=NEVER),
        Key("adapter.modules_to_save", ("lora_modules_to_save", "modules_to_save"), WORDS, [], back=NEVER),
        _set_adapter_dtypes,
    ),
)  # fmt: skip
"""The LoRA adapter (TRL's ModelConfig keys and their common other spellings)."""
