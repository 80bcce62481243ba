"""OLMo (allenai/OLMo): TrainConfig YAML of scripts/train.py.

Facts from ai2-olmo 0.6.0 (olmo/config.py, olmo/model.py, olmo/train.py), read statically. Weights are float32 under
autocast; FSDP 1 gathers and reduces as `fsdp.precision` says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream import olmo
from ..core.format import Format, Reading, written_by
from ..core.interpolation import interpolated
from ..core.keys import key_problems
from ..core.native import NativeConfig, decoder
from ..core.world_size import set_hardware

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import Project

NAME = "olmo"
UPSTREAM = "ai2-olmo 0.6.0"

_EVERY = {"one_in_two": 2, "one_in_three": 3, "one_in_four": 4, "one_in_eight": 8}
_MOST = {"two_in_three": 1, "three_in_four": 1}
_AUTOCAST = {"amp_bf16": "bfloat16", "amp_fp16": "float16"}


def recognise(document: Document) -> bool:
    """`model` with OLMo's sizes beside `optimizer` and a batch key."""
    root = document.root
    model = root.get("model")
    if document.syntax != "yaml" or model is None or not model.is_mapping or root.get("max_duration") is None:
        return False
    return model.get("d_model") is not None and (
        model.get("mlp_ratio") is not None
        or model.get("mlp_hidden_size") is not None
        or model.get("max_sequence_length") is not None
    )


def read(document: Document, project: Project) -> Reading:
    """The Job of a pretraining run."""
    whole = interpolated(document)
    config = NativeConfig(NAME, UPSTREAM, whole, project, None)
    config.reading.config = document
    builder, keys = config.builder, config.keys
    builder.derived("kind", "training", "a run of scripts/train.py")
    builder.derived("objective", "pretrain", "OLMo pretrains")
    builder.derived("framework", olmo.NAME, "its own loop and kernels")
    builder.derived("packing", True, "rows are cut out of a stream of tokens", "objective")
    _set_model(config)
    _set_precision(config)
    distributed = keys.raw("fsdp") or keys.raw("ddp")
    set_hardware(builder, project, None, sharded=distributed is not None)
    length = keys.mapping("model").integer("max_sequence_length", least=1)
    config.count("sequence_length", length, 1024, keys.mapping("model").blank("max_sequence_length"))
    micro = keys.integer("device_train_microbatch_size", least=1)
    config.count("micro_batch_size", micro, 16, keys.blank("device_train_microbatch_size"))
    gpus, size = builder.job.hardware.gpus or 1, builder.job.micro_batch_size or 1
    total = keys.integer("global_train_batch_size", least=1)
    steps = max(1, (total.value if total else 512) // (gpus * size))
    if total:
        config.put("gradient_accumulation_steps", total, steps, f"over {gpus} GPUs")
    else:
        builder.default("gradient_accumulation_steps", steps, "global_train_batch_size 512")
    _set_optimizer(config)
    _set_checkpointing(config)
    _set_sharding(config)
    compiled = keys.raw("compile")
    if compiled:
        config.put("compile", compiled, compiled.value is not None)
    config.fill()
    config.reading.problems[:0] = key_problems(whole, NAME)
    return config.reading


def _set_model(config: NativeConfig) -> None:
    """ModelConfig as OLMo 2 where norms stand behind attention and MLP, else as OLMo; SwiGLU halves the MLP's width."""
    model = config.keys.mapping("model")
    hidden, layers = model.integer("d_model", least=1), model.integer("n_layers", least=1)
    heads, groups = model.integer("n_heads", least=1), model.integer("n_kv_heads", least=1)
    ratio, width = model.integer("mlp_ratio", least=1), model.integer("mlp_hidden_size", least=1)
    rows, wide = model.integer("embedding_size", least=1), model.integer("vocab_size", least=1)
    size = int(hidden.value) if hidden else 768
    activation = model.text("activation_type")
    gated = activation is None or activation.value == "swiglu"
    inner = int(width.value) if width else (ratio.value if ratio else 4) * size
    tied = model.flag("weight_tying")
    second = model.is_on("norm_after") or model.is_on("attention_layer_norm")
    kind = "olmo2" if second else "olmo" if gated else "gpt_neox"
    number = heads.value if heads else 12
    found = decoder(
        f"olmo-{layers.value if layers else 12}x{size}", kind, hidden=size, layers=layers.value if layers else 12,
        heads=number, kv_heads=1 if model.is_on("multi_query_attention") else groups.value if groups else None,
        vocabulary=rows.value if rows else wide.value if wide else 50304, intermediate=inner // 2 if gated else inner,
        tie_word_embeddings=bool(tied.value) if tied else True,
    )  # fmt: skip
    if hidden:
        config.put("model", hidden, found, f"the stated dimensions, as a {kind} of Transformers")
    else:
        config.builder.assumed("model", None, "model.d_model is filled in elsewhere")
    flash = model.flag("flash_attention")
    if flash:
        config.put("attention", flash, "flash_attention_2" if flash.value else "sdpa")


def _set_precision(config: NativeConfig) -> None:
    given = config.keys.text("precision")
    config.builder.default("weights.dtype", "float32", "OLMo makes its weights in float32")
    if given and given.value in _AUTOCAST:
        config.put("precision.autocast", given, _AUTOCAST[given.value])
    elif given:
        config.put("precision.autocast", given, None)
    else:
        config.builder.default("precision.autocast", None, "precision null: default of OLMo")


def _set_optimizer(config: NativeConfig) -> None:
    given = config.keys.mapping("optimizer").text("name")
    name = {"adamw": "adamw_torch", "lionw": "lion_pytorch"}
    if given:
        config.put("optimizer.name", given, name.get(given.value, given.value))
    else:
        config.builder.default("optimizer.name", "lion_pytorch", "lionw: default of OptimizerConfig")


def _set_checkpointing(config: NativeConfig) -> None:
    given = config.keys.raw("activation_checkpointing")
    if given is None or given.value in (None, False):
        config.builder.default("activation_checkpointing", "none")
    elif given.value in _EVERY:
        config.put("activation_checkpointing", given, "full")
        config.put("checkpoint_every", given, _EVERY[given.value])
    elif given.value == "fine_grained":
        config.put("activation_checkpointing", given, "selective", "fine_grained, counted as keeping attention")
    else:
        note = "counted as every layer" if given.value in _MOST else ""
        config.put("activation_checkpointing", given, "full", note)


def _set_sharding(config: NativeConfig) -> None:
    builder, keys = config.builder, config.keys
    strategy = keys.text("distributed_strategy")
    if (strategy and strategy.value != "fsdp") or (builder.job.hardware.gpus or 1) < 2:
        builder.derived("parallelism.fsdp", None, "no FSDP, or one GPU")
        return
    section, fsdp = keys.mapping("fsdp"), "parallelism.fsdp."
    builder.default(f"{fsdp}version", 1, "torch's FullyShardedDataParallel")
    builder.default(f"{fsdp}sync_each_batch", True, "train_batch of olmo/train.py enters no_sync under DDP alone")
    wrapping, sharding, precision = (
        section.text("wrapping_strategy"), section.text("sharding_strategy"), section.text("precision"),
    )  # fmt: skip
    if wrapping:
        outer = "size" in wrapping.value
        config.put(f"{fsdp}wrap", wrapping, "transformer" if "block" in wrapping.value else "size")
        builder.derived(f"{fsdp}outer", "separate" if outer else "root", "embedding and head by size", f"{fsdp}wrap")
    else:
        builder.default(f"{fsdp}wrap", "none", "wrapping_strategy null: default of FSDPConfig")
    if sharding:
        config.put(f"{fsdp}sharding", sharding, sharding.value.lower())
    low = builder.job.precision.autocast
    reduced = "float32" if precision and precision.value == "mixed" else low
    if low:
        note = f"fsdp.precision {precision.value if precision else 'pure'}"
        builder.derived(f"{fsdp}mixed_precision.param_dtype", low, note)
        builder.derived(f"{fsdp}mixed_precision.reduce_dtype", reduced, note)


describe, edits = written_by("native.olmo_edits")


FORMAT = Format(NAME, "OLMo config", UPSTREAM, recognise, read, describe, edits, "not in the file: the launcher")
