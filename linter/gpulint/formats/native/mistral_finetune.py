"""mistral-finetune: the YAML of train.py.

Facts from mistral-finetune 1943535 (train.py, `args.py`, `wrapped_model.py` and `mixed_precision.py` of finetune),
read statically. bfloat16 weights, a float32 copy of what is trained, FSDP 1 with one unit a layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.format import Format, Reading, written_by
from ..core.keys import key_problems
from ..core.native import NativeConfig
from ..core.world_size import set_hardware

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import Project

NAME = "mistral_finetune"
UPSTREAM = "mistral-finetune 1943535"

_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
"""The layers that `maybe_lora` makes, under the names of Transformers."""


def recognise(document: Document) -> bool:
    """`model_id_or_path` beside mistral-finetune's data or its adapter."""
    root = document.root
    if document.syntax not in ("yaml", "flags") or root.get("model_id_or_path") is None:
        return False
    return any(root.find(key) is not None for key in ("data.instruct_data", "lora.rank", "save_adapters", "run_dir"))


def read(document: Document, project: Project) -> Reading:
    """The Job of a fine-tune."""
    config = NativeConfig(NAME, UPSTREAM, document, project, None)
    builder, keys = config.builder, config.keys
    builder.derived("kind", "training", "a run of train.py")
    builder.derived("objective", "sft", "it fine-tunes")
    builder.derived("packing", True, "samples are put behind each other up to seq_len", "objective")
    model = keys.text("model_id_or_path")
    if model:
        config.put("model", model)
    else:
        builder.assumed("model", None, "model_id_or_path is to be filled in")
    set_hardware(builder, project, None, sharded=True)
    _set_adapter(config)
    builder.default("weights.dtype", "bfloat16", "param_dtype of train.py")
    builder.default("precision.master_weights", True, "prepare_mixed_precision keeps what is trained in float32")
    fsdp = "parallelism.fsdp."
    if (builder.job.hardware.gpus or 1) > 1:
        for name, value in (("version", 1), ("sharding", "full_shard"), ("wrap", "transformer")):
            builder.default(f"{fsdp}{name}", value, "get_model of wrapped_model.py")
        builder.default(f"{fsdp}use_orig_params", False)
        builder.default(f"{fsdp}sync_each_batch", True, "the loop of train.py has no no_sync")
    config.count("micro_batch_size", keys.integer("batch_size", least=1), 1, keys.blank("batch_size"))
    config.count("sequence_length", keys.integer("seq_len", least=1), 2048, keys.blank("seq_len"))
    config.count("gradient_accumulation_steps", keys.integer("num_microbatches", least=1), 1)
    checkpoint = keys.flag("checkpoint")
    if checkpoint:
        config.put("activation_checkpointing", checkpoint, "full" if checkpoint.value else "none")
    else:
        builder.default("activation_checkpointing", "full", "checkpoint true: default of TrainArgs")
    builder.default("attention", "flash_attention_2", "xformers' memory efficient attention")
    builder.default("loss.upcast", "model", "the model returns float32 logits")
    builder.default("loss.kept", True, "the loop of train.py names the output until the next is there")
    config.fill()
    config.reading.problems[:0] = key_problems(document, NAME)
    return config.reading


def _set_adapter(config: NativeConfig) -> None:
    """LoRA on every linear layer but the head, unless `lora.enable` is false; `scaling` is alpha over rank."""
    builder, section = config.builder, config.keys.mapping("lora")
    off = section.flag("enable")
    if off and not off.value:
        config.put("method", off, "full")
        return
    entry = config.keys.raw("lora")
    if entry:
        config.put("method", entry, "lora")
    else:
        builder.default("method", "lora", "lora.enable true: default of LoraArgs")
    builder.derived("adapter.type", "lora", "LoRALinear", "method")
    rank, scaling = section.integer("rank", least=1), section.number("scaling")
    config.count("adapter.r", rank, 16)
    alpha = (scaling.value if scaling else 2.0) * builder.job.adapter.r if builder.job.adapter else None
    builder.derived("adapter.alpha", alpha, "rank x scaling", "adapter.r")
    builder.default("adapter.targets", list(_TARGETS), "maybe_lora of model/transformer.py")
    builder.default("adapter.dtype", "bfloat16", "param_dtype of train.py")


describe, edits = written_by("native.mistral_finetune_edits")


FORMAT = Format(
    NAME, "mistral-finetune config", UPSTREAM, recognise, read, describe, edits, "not in the file: torchrun"
)
