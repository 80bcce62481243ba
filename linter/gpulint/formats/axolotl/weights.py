"""Base weights, adapter and precision of an axolotl run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...job.job import Quantization
from ..core.coercion import as_boolean

if TYPE_CHECKING:
    from ..core.arguments import Given
    from .config import AxolotlConfig

WORDS = {"bfloat16": "bf16", "float16": "fp16"}
"""Job dtype -> accelerate's word for that mixed precision."""


def set_precision(config: AxolotlConfig) -> None:
    """`weights.dtype` and `precision.autocast` (`resolve_dtype`, `_configure_precision_settings`).

    bf16 true or "auto" on a GPU that has it, or `bfloat16`: bfloat16; else fp16, float16 or load_in_8bit: float16;
    else float32. The Trainer's autocast follows bf16, bfloat16 and fp16 alone. Without FSDP and DeepSpeed the
    optimizer works on these weights directly; there is no float32 copy.
    """
    builder, keys = config.builder, config.keys
    bf16, pure = None if keys.blank("bf16") else keys.raw("bf16"), keys.flag("bfloat16")
    half = next((flag for key in ("fp16", "float16", "load_in_8bit") if (flag := keys.flag(key)) and flag.value), None)
    amp = keys.flag("fp16")
    written = bf16.value if bf16 is not None and bf16.value is not None else "auto"
    automatic = written == "auto"
    if automatic:
        is_bf16 = not (amp and amp.value) and (config.project.gpu is None or config.project.gpu.bf16)
    else:
        is_bf16 = bool(as_boolean(written)) or written == "full"
    if is_bf16 or (pure and pure.value):
        _from(config, "bfloat16", bf16 if bf16 and is_bf16 else pure, "bfloat16", automatic and is_bf16)
    elif half is not None:
        _from(config, "float16", half, "float16" if half.key == "fp16" else None, automatic=False)
    elif automatic and not (amp and amp.value is False):
        _from(config, "float16", bf16, "float16", automatic=True)
    else:
        _from(config, "float32", bf16, None, automatic=False)
    builder.default("precision.master_weights", False)
    builder.default("precision.gradients", None)
    eight = keys.flag("fp8")
    if eight and eight.value:
        config.put("precision.compute", eight, "float8", "torchao's float8 linear layers (core/fp8.py)")
    else:
        builder.default("precision.compute", None)
    offloaded = keys.flag("layer_offloading")
    if offloaded:
        config.put("weights.frozen_layers_offloaded", offloaded, offloaded.value)


def _from(config: AxolotlConfig, dtype: str, given: Given | None, autocast: str | None, automatic: bool) -> None:
    note = ""
    if automatic:
        gpu = config.project.gpu
        note = f'"auto" on {gpu.title}' if gpu is not None else '"auto", taken to be a GPU with bfloat16'
    for field, value in (("weights.dtype", dtype), ("precision.autocast", autocast)):
        if given is not None:
            config.put(field, given, value, note)
        else:
            told = f"bf16 {note}, the default of {config.builder.upstream}" if note else ""
            config.builder.default(field, value, told)


def set_quantization(config: AxolotlConfig) -> None:
    """`weights.quantization` (`_set_quantization_config`): only `qlora` with 4 bits and `lora` with 8 bits quantise.

    4 bits are NF4 with double quantisation, stored as bfloat16; `bnb_config_kwargs` overrides.
    """
    keys, builder = config.keys, config.builder
    adapter = keys.text("adapter")
    name = adapter.value if adapter else None
    four, eight = keys.flag("load_in_4bit"), keys.flag("load_in_8bit")
    named = keys.text("model_quantization_config")
    builder.default("weights.quantization", None)
    if four is None and name == "qlora":
        four = keys.blank("load_in_4bit")
    if four and four.value and name == "qlora":
        kwargs = keys.mapping("bnb_config_kwargs")
        kind, double = kwargs.text("bnb_4bit_quant_type"), kwargs.flag("bnb_4bit_use_double_quant")
        storage = kwargs.text("bnb_4bit_quant_storage")
        config.put("weights.quantization", four, Quantization("bnb-nf4", 4.0), "QLoRA")
        if kind and kind.value in ("fp4", "nf4"):
            config.put("weights.quantization.method", kind, f"bnb-{kind.value}")
        else:
            builder.default("weights.quantization.method", "bnb-nf4")
        if double:
            config.put("weights.quantization.double_quant", double, double.value)
        else:
            builder.default("weights.quantization.double_quant", True)
        if storage:
            config.put("weights.quantization.storage_dtype", storage, storage.value.removeprefix("torch."))
        else:
            builder.default("weights.quantization.storage_dtype", "bfloat16")
        _set_experts(config)
    elif eight and eight.value and name == "lora":
        config.put("weights.quantization", eight, Quantization("bnb-int8", 8.0))
        config.put("weights.quantization.method", eight, "bnb-int8")
        _set_experts(config)
    elif named and named.value == "FineGrainedFP8Config":
        config.put("weights.quantization", named, Quantization("fp8", 8.0))
    elif named and named.value == "Mxfp4Config" and not _dequantized(config):
        config.put("weights.quantization", named, Quantization("mxfp4", 4.0))


def _set_experts(config: AxolotlConfig) -> None:
    """`quantize_moe_experts` packs every 3-D expert parameter as it is loaded (monkeypatch/moe_quant.py)."""
    experts = config.keys.flag("quantize_moe_experts")
    if experts:
        config.put("weights.quantization.experts", experts, experts.value)
    else:
        config.builder.default("weights.quantization.experts", False)


def _dequantized(config: AxolotlConfig) -> bool:
    return config.keys.mapping("model_quantization_config_kwargs").is_on("dequantize")


def set_method(config: AxolotlConfig) -> None:
    """`method`, `adapter` and `trainable`: a PEFT adapter, a full fine-tune, or one with most parameters frozen."""
    keys, builder = config.keys, config.builder
    adapter = keys.text("adapter")
    unfrozen = keys.words("unfrozen_parameters")
    if adapter:
        config.put("method", adapter, "lora" if adapter.value in ("lora", "qlora") else adapter.value)
        _adapter(config, adapter)
    elif unfrozen:
        config.put("method", unfrozen, "freeze")
        config.put("trainable", unfrozen, unfrozen.value)
        builder.default("adapter", None)
    else:
        given = None if keys.blank("adapter") else keys.raw("adapter")
        if given is not None:
            config.put("method", given, "full", "no adapter")
        else:
            builder.default("method", "full")
        builder.default("adapter", None)
    mm = keys.flag("freeze_mm_modules")
    if mm and mm.value and not adapter and not unfrozen:
        frozen = r"^(?!.*(vision|visual|audio|multi_modal_projector|image_newline))"
        config.put("trainable", mm, [frozen], "vision and audio towers and projectors are frozen")


def _adapter(config: AxolotlConfig, adapter: Given) -> None:
    keys, builder = config.keys, config.builder
    dora = keys.flag("peft_use_dora")
    if dora and dora.value:
        config.put("adapter.type", dora, "dora")
    else:
        config.put("adapter.type", adapter, "lora" if adapter.value in ("lora", "qlora") else adapter.value)
    rank = keys.integer("lora_r", least=1)
    if rank:
        config.put("adapter.r", rank, rank.value)
    else:
        builder.assumed("adapter.r", 8, f"{builder.upstream} has no default for lora_r; PEFT's is 8")
    for field, key in (("adapter.alpha", "lora_alpha"), ("adapter.dropout", "lora_dropout")):
        given = keys.number(key)
        if given:
            config.put(field, given, given.value)
        else:
            config.default(field, key)
    _targets(config)
    saved = keys.words("lora_modules_to_save")
    if saved:
        config.put("adapter.modules_to_save", saved, saved.value)
    else:
        builder.default("adapter.modules_to_save", [])
    layers = keys.raw("peft_layers_to_transform")
    if layers and isinstance(layers.value, list) and all(isinstance(layer, int) for layer in layers.value):
        config.put("adapter.layers", layers, layers.value)
    pattern = keys.raw("lora_rank_pattern")
    if pattern and isinstance(pattern.value, dict):
        ranks = {str(name): rank for name, rank in pattern.value.items() if isinstance(rank, int)}
        config.put("adapter.rank_pattern", pattern, ranks)
    _adapter_dtype(config)


def _targets(config: AxolotlConfig) -> None:
    """`lora_target_linear` finds every nn.Linear but the head; otherwise names, or one regular expression."""
    keys = config.keys
    linear = keys.flag("lora_target_linear")
    modules = keys.raw("lora_target_modules")
    parameters = keys.raw("lora_target_parameters")
    extra = _names(parameters.value) if parameters else []
    if parameters is not None and extra:
        config.put("adapter.parameters", parameters, extra)
    if linear and linear.value:
        config.put("adapter.targets", linear, "all-linear")
        return
    names = modules.value if modules else None
    if modules is not None and names and (isinstance(names, str) or _names(names)):
        config.put("adapter.targets", modules, names if isinstance(names, str) else _names(names))
    elif not extra:
        config.builder.default("adapter.targets", [], f"{config.builder.upstream} adapts nothing that is not named")


def _names(value: object) -> list[str]:
    return [name for name in (value if isinstance(value, list) else [value]) if isinstance(name, str)]


def _adapter_dtype(config: AxolotlConfig) -> None:
    """PEFT's choice unless its autocast is off; norms, embeddings and head are in 16 bits after k-bit preparation.

    `_configure_embedding_dtypes` casts norms and embeddings to the compute dtype for every adapter, after
    `prepare_model_for_kbit_training` had made them float32. With `embeddings_skip_upcast` over 4 bits that list of
    embeddings is empty, and PEFT's preparation is patched to leave `embed_tokens` and `lm_head` as they are
    (monkeypatch/peft/utils.py `patch_peft_prep_code`); FSDP QLoRA and ZeRO-3 skip the preparation.
    """
    keys, builder = config.keys, config.builder
    cast = keys.flag("peft_autocast_adapter_dtype")
    if cast and not cast.value:
        config.put("adapter.dtype", cast, builder.job.weights.dtype)
    else:
        builder.default("adapter.dtype", None, f"default of {builder.upstream}: float32 as PEFT casts")
    skip = keys.flag("embeddings_skip_upcast")
    if skip and skip.value:
        config.put("adapter.prepare_kbit", skip, False, "PEFT's preparation leaves embeddings and head as they are")
    else:
        note = f"{builder.upstream} casts norms, embeddings and head back to 16 bits"
        builder.default("adapter.prepare_kbit", False, note)


_UNCAST = frozenset({"eager", "sdpa"})
"""Attentions that take float32 norms (`ATTN_IMPLS_WITHOUT_DTYPE_CAST`)."""

_EMBEDDINGS = ("embed_tokens", "embed_in", "embed_out", "word_embeddings", "lm_head")
"""`get_linear_embedding_layers` over the model types."""


def set_upcast(config: AxolotlConfig) -> None:
    """`weights.float32`: norms, embeddings and head of a full fine-tune (`_configure_embedding_dtypes`).

    Everything starts in float32 there and only goes back to 16 bits for an adapter, for an attention that asks for it,
    and for cut cross entropy: `weights.float32_once`. FSDP skips both ways, DeepSpeed casts every parameter anyway, of
    which stage 3 has none whole by then. `embeddings_skip_upcast` over 4 bits leaves embeddings alone.
    """
    builder, job = config.builder, config.builder.job
    zero, fsdp = job.parallelism.zero, job.parallelism.fsdp
    stays = job.adapter is None and job.attention in _UNCAST and job.loss.kernel != "cut_cross_entropy"
    if stays and zero is None and fsdp is None and job.weights.dtype in ("bfloat16", "float16"):
        note = f"{builder.upstream} leaves norms, embeddings and head of a full fine-tune in float32"
        builder.derived("weights.float32", ["norm", *_EMBEDDINGS], note, "attention")
    else:
        builder.default("weights.float32", [])
    skip, four = config.keys.flag("embeddings_skip_upcast"), config.keys.flag("load_in_4bit")
    alone = bool(skip and skip.value and four and four.value) or (zero is not None and zero.stage == 3)
    if not stays and not alone and fsdp is None and job.weights.dtype in ("bfloat16", "float16"):
        note = f"{builder.upstream} makes embeddings and head float32 and narrows them again before training"
        builder.default("weights.float32_once", list(_EMBEDDINGS), note)
    else:
        builder.default("weights.float32_once", [])


def check_weights(config: AxolotlConfig) -> None:
    """4- or 8-bit loading that axolotl does not carry out: with another adapter the weights stay unpacked.

    `adapter: lora` with `load_in_4bit` quantises nothing, but `_prepare_model_for_quantization` still runs and casts
    every 16-bit weight to float32.
    """
    keys = config.keys
    adapter = keys.text("adapter")
    four = keys.flag("load_in_4bit")
    if not (four and four.value and adapter and adapter.value == "lora") or _is_prequantized(config):
        return
    message = "only adapter: qlora quantises to 4 bits; the base weights are loaded unpacked and cast to float32"
    config.contradiction(four, "adapter: lora", message)
    if not config.is_fsdp and not config.is_deepspeed:
        config.put("weights.dtype", four, "float32", "k-bit preparation over unpacked weights")


def _is_prequantized(config: AxolotlConfig) -> bool:
    model = config.builder.job.model
    if not isinstance(model, str):
        return False
    if "bnb" in model.lower() or "4bit" in model.lower():
        return True
    from ..core.model_facts import find_model

    found = find_model(model, config.document.path, config.project.root)
    return found is not None and "quantization_config" in found.config
