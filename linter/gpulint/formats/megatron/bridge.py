"""Megatron-Bridge: YAML laid over a recipe's ConfigContainer (`--config-file`), or a run's own `run_config.yaml`.

Facts from Megatron-Bridge (src/megatron/bridge/training/config.py, peft/lora.py), read statically. The recipe, which
is a Python function, names the model where the file does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.format import Format, Reading, written_by
from ..core.interpolation import interpolated
from ..core.keys import key_problems
from ..core.native import NativeConfig
from .model import Sizes, config_of, feed_forward
from .plan import (
    set_accumulation,
    set_chunks,
    set_degrees,
    set_gpus,
    set_recomputation,
    set_sixteen_bits,
    set_states,
)

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.arguments import Arguments
    from ..core.format import Project

NAME = "megatron_bridge"
UPSTREAM = "Megatron-Bridge 0.7.0"

_SECTIONS = frozenset({"ddp", "dist", "rng", "scheduler", "logger", "checkpoint", "dataset", "peft", "mixed_precision"})
"""Sections of ConfigContainer beside `train`, `model` and `optimizer`."""


def recognise(document: Document) -> bool:
    """`train` with its iterations or batches beside sections of a ConfigContainer."""
    root = document.root
    train = root.get("train")
    if document.syntax != "yaml" or train is None or not train.is_mapping:
        return False
    counted = not {"train_iters", "global_batch_size", "micro_batch_size"}.isdisjoint(train.keys())
    return counted and len(_SECTIONS.intersection(map(str, root.keys()))) >= 2


def read(document: Document, project: Project) -> Reading:
    """The Job of a run; the model is not known where only the recipe names it."""
    config = NativeConfig(NAME, UPSTREAM, interpolated(document), project, "megatron")
    config.reading.config = document
    builder, keys = config.builder, config.keys
    model, train = keys.mapping("model"), keys.mapping("train")
    builder.derived("kind", "training", "a run of a recipe")
    tuned = keys.raw("peft") is not None or keys.mapping("checkpoint").raw("pretrained_checkpoint") is not None
    builder.derived(
        "objective", "sft" if tuned else "pretrain", "a pretrained checkpoint or an adapter" if tuned else ""
    )
    _set_packing(config, tuned=tuned)
    replica = set_degrees(config, model)
    _set_model(config, model)
    ranks = set_gpus(config, replica, None)
    config.count("micro_batch_size", train.integer("micro_batch_size", least=1), None, train.blank("micro_batch_size"))
    length = keys.mapping("dataset").integer("seq_length", "sequence_length", least=1)
    config.count("sequence_length", length or model.integer("seq_length", least=1), None, model.blank("seq_length"))
    set_accumulation(config, train.integer("global_batch_size", least=1), ranks)
    chunks = model.integer("virtual_pipeline_model_parallel_size", least=1)
    set_chunks(config, chunks, chunks.value if chunks else 1)
    set_recomputation(config, model, "recompute_")
    _set_precision(config)
    _set_adapter(config)
    config.fill()
    config.reading.problems += key_problems(document, NAME)
    return config.reading


def _set_packing(config: NativeConfig, *, tuned: bool) -> None:
    """Packed offline to `packed_sequence_size` tokens or in each batch; pretraining cuts rows out of a stream."""
    dataset = config.keys.mapping("dataset")
    size = next(
        (
            given
            for name in ("offline_packing_specs", "packed_sequence_specs")
            if (given := dataset.mapping(name).integer("packed_sequence_size", least=1))
        ),
        None,
    )
    together = dataset.flag("enable_in_batch_packing", "pack_sequences_in_batch")
    if size:
        config.put("packing", size, value=True)
    elif together and together.value:
        config.put("packing", together)
    else:
        note = "rows of their own" if tuned else "pretraining cuts rows out of a stream"
        config.builder.derived("packing", not tuned, note, "objective")


def _set_model(config: NativeConfig, model: Arguments) -> None:
    """The sizes of a provider, which a run's own config has whole."""
    sizes = [
        model.integer(name, least=1) for name in ("hidden_size", "num_layers", "num_attention_heads", "vocab_size")
    ]
    hidden, layers, heads, rows = sizes
    if hidden is None or layers is None or heads is None or rows is None:
        config.builder.assumed("model", None, "the recipe names the model, not this file")
        return
    gated = model.is_on("gated_linear_unit")
    width, groups = model.integer("ffn_hidden_size", least=1), model.integer("num_query_groups", least=1)
    found = config_of(
        f"megatron-{layers.value}x{hidden.value}",
        Sizes(
            hidden.value, layers.value, heads.value, rows.value,
            width.value if width else feed_forward(hidden.value, gated=gated), groups=groups.value if groups else None,
            gated=gated, tied=model.is_on("share_embeddings_and_output_weights"),
        ),
    )  # fmt: skip
    config.put("model", layers, found, f"the stated dimensions, as a {found['model_type']} of Transformers")


def _set_precision(config: NativeConfig) -> None:
    """bf16_mixed of the recipes: 16-bit weights, float32 gradients and main parameters, divided over the ranks."""
    builder, ddp = config.builder, config.keys.mapping("ddp")
    given = config.keys.text("mixed_precision")
    half = "float16" if given and "fp16" in given.value else "bfloat16"
    whole = ddp.flag("grad_reduce_in_fp32")
    gradients = half if whole and not whole.value else "float32"
    if given:
        set_sixteen_bits(config, given, half, gradients)
    else:
        builder.default("weights.dtype", half, "bf16_mixed: what the recipes ask for")
        builder.default("precision.master_weights", True, "Megatron keeps fp32 main parameters")
        builder.default("precision.gradients", gradients, "the dtype of Megatron's gradient buffer")
    divided = ddp.flag("use_distributed_optimizer")
    if divided:
        config.put("parallelism.zero.stage", divided, int(bool(divided.value)), "states divided like ZeRO-1")
    else:
        builder.default("parallelism.zero.stage", 1, "use_distributed_optimizer: what the recipes ask for")
    builder.derived("parallelism.zero.library", "megatron", "Megatron's gradient buffer", "parallelism.zero.stage")
    builder.default("optimizer.name", "adamw_torch_fused", "adam: the fused one of Transformer Engine")
    set_states(config, config.keys.mapping("optimizer"))


def _set_adapter(config: NativeConfig) -> None:
    """`peft` with a rank: Megatron-Bridge's LoRA on attention and MLP."""
    builder, peft = config.builder, config.keys.mapping("peft")
    rank = peft.integer("dim", least=1)
    if rank is None:
        return
    config.put("method", rank, "lora")
    builder.derived("adapter.type", "lora", "LoRA", "method")
    config.put("adapter.r", rank)
    alpha = peft.number("alpha")
    if alpha:
        config.put("adapter.alpha", alpha)
    builder.default("adapter.targets", "all-linear", "linear_qkv, linear_proj, linear_fc1, linear_fc2: default of LoRA")


describe, edits = written_by("megatron.bridge_edits")


FORMAT = Format(
    NAME, "Megatron-Bridge overrides", UPSTREAM, recognise, read, describe, edits, "not in the file: torchrun"
)
