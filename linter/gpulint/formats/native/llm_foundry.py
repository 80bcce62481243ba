"""LLM Foundry (MosaicML): train.py YAML, alone or as the `parameters` of an mcli run.

Facts from llm-foundry 0.22.0 (command_utils/train.py, utils/config_utils.py, models/mpt, models/hf) and Composer, read
statically. Weights are float32 under `amp_bf16`; FSDP's `mixed_precision` says what is gathered and reduced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...source.node import Node
from ..core.arguments import Arguments
from ..core.format import Format, NoJobError, Reading, written_by
from ..core.interpolation import interpolated
from ..core.keys import key_problems
from ..core.native import NativeConfig, decoder
from ..core.placeholders import is_blank
from ..core.world_size import Stated, set_hardware

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import Project

NAME = "llm_foundry"
UPSTREAM = "llm-foundry 0.22.0"

_PRECISIONS: dict[str, tuple[str, str | None]] = {
    "amp_bf16": ("float32", "bfloat16"), "amp_fp16": ("float32", "float16"), "amp_fp8": ("float32", "bfloat16"),
    "fp32": ("float32", None), "bf16": ("bfloat16", None),
}  # fmt: skip
_OPTIMIZERS = {
    "decoupled_adamw": "decoupled_adamw", "adamw": "adamw_torch", "adam": "adamw_torch",
    "decoupled_lionw": "decoupled_lionw", "decoupled_lionw_8b": "lion_8bit", "adalr_lion": "lion_pytorch",
    "clip_lion": "lion_pytorch", "no_op": "sgd",
}  # fmt: skip
_SIZES = (("d_model", 2048), ("n_layers", 24), ("n_heads", 16), ("vocab_size", 50368))
"""Dimensions of MPTConfig and their defaults."""


def recognise(document: Document) -> bool:
    """`model.name` of a causal model or T5 beside `train_loader`, at the top or below an mcli run's `parameters`.

    The BERT example of mosaicml/examples (`hf_bert`, `mosaic_bert`) has the same sections and a `main.py` of its own.
    """
    root = document.root
    if document.syntax != "yaml":
        return False
    if root.get("command") is not None and "llm-foundry" in str((root.get("command") or root).value):
        return root.get("image") is not None or root.get("compute") is not None
    inner = root.get("parameters")
    section = inner if inner is not None and inner.is_mapping else root
    name = section.find("model.name")
    if name is None or str(name.value.value).endswith("_bert"):
        return False
    return section.get("max_seq_len") is not None and section.get("train_loader") is not None


def read(document: Document, project: Project) -> Reading:
    """The Job of a run of train.py."""
    whole = interpolated(document)
    inner = whole.root.get("parameters")
    prefix = "parameters" if inner is not None and inner.is_mapping else ""
    if inner is not None and prefix:
        whole = interpolated(whole._replace(roots=[inner]))
    if whole.root.find("model.name") is None:
        raise NoJobError(document.path, "starts a YAML of llm-foundry's own repository, or prepares data")
    config = NativeConfig(NAME, UPSTREAM, whole, project, None)
    config.reading.config = document
    config.keys.prefix = prefix
    builder, keys = config.builder, config.keys
    builder.derived("kind", "training", "a run of train.py")
    loader = keys.mapping("train_loader").text("name")
    text = loader is not None and loader.value in ("text", "text_denoising")
    builder.derived("objective", "pretrain" if text else "sft", "train_loader.name")
    builder.derived("packing", text, "the text loader fills rows", "objective")
    packing = keys.mapping("train_loader").mapping("dataset").raw("packing_ratio")
    if packing and packing.value is not None:
        config.put("packing", packing, True)
    _set_model(config)
    _set_precision(config)
    _set_gpus(config, document.root)
    config.count("sequence_length", keys.integer("max_seq_len", least=1), None, keys.blank("max_seq_len"))
    _set_batch(config)
    _set_optimizer(config)
    _set_sharding(config)
    config.fill()
    config.reading.problems[:0] = key_problems(whole, NAME, prefix=prefix)
    return config.reading


def _set_model(config: NativeConfig) -> None:
    builder, model = config.builder, config.keys.mapping("model")
    name = model.text("name")
    kind = str(name.value) if name else ""
    if kind == "hf_t5" or "t5" in kind:
        raise NoJobError(config.document.path, "a model with an encoder and a decoder")
    given = model.text("pretrained_model_name_or_path")
    if given and not is_blank(given.value):
        config.put("model", given)
        loss = model.flag("use_flash_attention_2")
        if loss and loss.value:
            config.put("attention", loss, "flash_attention_2")
    elif kind == "mpt_causal_lm" and name:
        sizes = {}
        for key, usual in _SIZES:
            stated = model.integer(key, least=1)
            sizes[key] = int(stated.value) if stated else usual
        ratio = model.number("expansion_ratio")
        groups = model.mapping("attn_config").integer("kv_n_heads", least=1)
        tied = model.flag("tie_word_embeddings")
        found = decoder(
            f"mpt-{sizes['n_layers']}x{sizes['d_model']}", "mpt", hidden=sizes["d_model"], layers=sizes["n_layers"],
            heads=sizes["n_heads"], vocabulary=sizes["vocab_size"],
            intermediate=int((ratio.value if ratio else 4) * sizes["d_model"]),
            kv_heads=groups.value if groups else None, tie_word_embeddings=bool(tied.value) if tied else True,
        )  # fmt: skip
        config.put("model", name, found, "the stated dimensions of MPT, with MPTConfig's where none is stated")
        kernel = model.mapping("attn_config").text("attn_impl")
        flash = kernel is None or kernel.value == "flash"
        if kernel:
            config.put("attention", kernel, "flash_attention_2" if flash else "eager")
        else:
            builder.default("attention", "flash_attention_2")
    else:
        builder.assumed("model", None, "no key names the model, or somebody fills it in")
    peft = model.mapping("peft_config")
    if not peft.entries:
        builder.default("method", "full")
        return
    rank, alpha, targets = peft.integer("r", least=1), peft.number("lora_alpha"), peft.words("target_modules")
    entry = model.raw("peft_config")
    if entry:
        config.put("method", entry, "lora")
    builder.derived("adapter.type", "lora", "peft_config", "method")
    if rank:
        config.put("adapter.r", rank)
    if alpha:
        config.put("adapter.alpha", alpha)
    if targets:
        config.put("adapter.targets", targets)


def _set_precision(config: NativeConfig) -> None:
    given = config.keys.text("precision")
    dtype, autocast = _PRECISIONS.get(given.value if given else "amp_bf16", ("float32", "bfloat16"))
    if given:
        config.put("weights.dtype", given, dtype)
        config.put("precision.autocast", given, autocast)
        if given.value == "amp_fp8":
            config.put("precision.compute", given, "float8-te")
    else:
        config.builder.default("weights.dtype", dtype)
        config.builder.default("precision.autocast", autocast, "precision amp_bf16: default of llm-foundry")


def _set_gpus(config: NativeConfig, root: Node) -> None:
    compute = Arguments(root.get("compute"), "compute")
    gpus = compute.integer("gpus", least=1)
    stated = Stated(gpus.value, gpus.entry, gpus.key) if gpus else None
    set_hardware(config.builder, config.project, stated, sharded=config.keys.raw("fsdp_config") is not None)


def _set_batch(config: NativeConfig) -> None:
    """`device_train_microbatch_size: auto` halves the device's batch until it fits: nothing states the size then."""
    builder, keys = config.builder, config.keys
    micro = keys.integer("device_train_microbatch_size", least=1)
    auto = keys.raw("device_train_microbatch_size")
    total = keys.integer("global_train_batch_size", least=1)
    gpus = builder.job.hardware.gpus or 1
    if micro is None and (auto is None or auto.value == "auto"):
        note = "auto: Composer halves the batch until it fits"
        if auto:
            config.put("micro_batch_size", auto, None, note)
        else:
            builder.default("micro_batch_size", None, note)
    else:
        config.count("micro_batch_size", micro, None, keys.blank("device_train_microbatch_size"))
    size = builder.job.micro_batch_size
    if total and size:
        config.put("gradient_accumulation_steps", total, max(1, total.value // (gpus * size)), f"over {gpus} GPUs")
    else:
        builder.default("gradient_accumulation_steps", 1, "one device batch")


def _set_optimizer(config: NativeConfig) -> None:
    given = config.keys.mapping("optimizer").text("name")
    if given:
        config.put("optimizer.name", given, _OPTIMIZERS.get(given.value, given.value))
    else:
        config.builder.assumed("optimizer.name", "decoupled_adamw", "optimizer.name is not stated")


def _set_sharding(config: NativeConfig) -> None:
    """FSDP 1 over the model's blocks; `mixed_precision` PURE reduces in 16 bits, DEFAULT in float32."""
    builder, section = config.builder, config.keys.mapping("fsdp_config")
    checkpointing, offload = section.flag("activation_checkpointing"), section.flag("activation_cpu_offload")
    if offload and offload.value:
        config.put("activation_checkpointing", offload, "offload")
    elif checkpointing:
        config.put("activation_checkpointing", checkpointing, "full" if checkpointing.value else "none")
    reentrant = section.flag("activation_checkpointing_reentrant")
    if reentrant:
        config.put("reentrant", reentrant)
    if not section.entries or (builder.job.hardware.gpus or 1) < 2:
        builder.derived("parallelism.fsdp", None, "no fsdp_config, or one GPU")
        return
    fsdp = "parallelism.fsdp."
    builder.default(f"{fsdp}version", 1, "Composer wraps with FSDP 1")
    builder.default(f"{fsdp}wrap", "transformer", "fsdp_wrap_fn: the blocks of the model")
    builder.default(f"{fsdp}sync_each_batch", True, "Composer's trainer enters no_sync under DDP alone")
    strategy = section.text("sharding_strategy")
    if strategy:
        config.put(f"{fsdp}sharding", strategy, strategy.value.lower())
    else:
        builder.default(f"{fsdp}sharding", "full_shard")
    policy = section.text("mixed_precision")
    word = policy.value.upper() if policy else "DEFAULT"
    low = builder.job.precision.autocast
    if word in ("PURE", "DEFAULT") and low:
        note = f"mixed_precision {word}"
        builder.derived(f"{fsdp}mixed_precision.param_dtype", low, note)
        builder.derived(f"{fsdp}mixed_precision.reduce_dtype", low if word == "PURE" else "float32", note)


describe, edits = written_by("native.llm_foundry_edits")


FORMAT = Format(NAME, "LLM Foundry config", UPSTREAM, recognise, read, describe, edits, "compute.gpus of an mcli run")
