"""LitGPT: fine-tuning and pretraining YAML, and the flags of `litgpt finetune_lora` and its kin.

Facts from litgpt 0.5.13 at 26857050 (litgpt/finetune/*.py, litgpt/pretrain.py, litgpt/args.py), read statically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...models.llama_adapter import FIRST_VERSION, SECOND_VERSION
from ...models.llama_adapter import TYPES as ADAPTERS
from ..core.coercion import as_integer
from ..core.format import Format, NoJobError, Reading, written_by
from ..core.keys import default, key_problems
from ..core.model_facts import find_model
from ..core.native import NativeConfig, optimizer_of
from ..core.placeholders import is_blank
from ..core.world_size import Stated, set_hardware
from .litgpt_model import changed, hub_id, lora_targets, quantization_of

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import Project

NAME = "litgpt"
UPSTREAM = "litgpt 0.5.13"

_LORA = ("query", "key", "value", "projection", "mlp", "head")
_BATCHES = {"finetune": (16, 1), "pretrain": (512, 4)}
"""(global, micro) batch sizes that the `setup` functions give."""

_PRECISIONS: dict[str, tuple[str, str | None]] = {
    "bf16-true": ("bfloat16", None), "bf16-mixed": ("float32", "bfloat16"), "16-true": ("float16", None),
    "16-mixed": ("float32", "float16"), "32-true": ("float32", None), "32": ("float32", None),
}  # fmt: skip
"""Fabric's precision -> dtype of the weights and autocast."""

_TRAINS = {
    "finetune": "lora", "finetune_lora": "lora", "finetune_full": "full", "pretrain": "pretrain",
    "finetune_adapter": FIRST_VERSION, "finetune_adapter_v2": SECOND_VERSION,
}  # fmt: skip
"""The commands that train, by what."""


def recognise(document: Document) -> bool:
    """`train` beside a checkpoint folder with LitGPT's devices or LoRA keys, or beside the name of a model."""
    keys = set(document.root.keys())
    train = document.root.get("train")
    if document.syntax != "yaml" or train is None or not train.is_mapping:
        return False
    inside = set(train.keys())
    if not inside & {"global_batch_size", "micro_batch_size", "max_seq_length", "max_tokens", "lr_warmup_steps"}:
        return False
    return bool("checkpoint_dir" in keys or ("model_name" in keys and keys & {"tokenizer_dir", "out_dir", "num_nodes"}))


def read(document: Document, project: Project) -> Reading:
    """The Job of a run. Raises NoJobError for commands that train nothing."""
    script = _script(document)
    config = NativeConfig(NAME, UPSTREAM, document, project, "litgpt", dashes=document.syntax == "flags")
    builder = config.builder
    builder.derived("kind", "training", "a training run")
    objective = "pretrain" if script == "pretrain" else "sft"
    builder.derived("objective", objective, f"litgpt {script}")
    _set_precision(config)
    _set_model(config, script)
    _set_gpus(config, script)
    _set_batch(config, script)
    _set_optimizer(config, script)
    config.fill()
    config.reading.problems[:0] = key_problems(document, NAME, known=("command", "config"))
    return config.reading


def _script(document: Document) -> str:
    """What is trained: by the command, else by the keys that only one of the scripts has."""
    root = document.root
    command = root.get("command")
    if command is not None and isinstance(command.value, str):
        if command.value in _TRAINS:
            return _TRAINS[command.value]
        raise NoJobError(document.path, f"litgpt {command.value}: trains nothing")
    names = set(root.keys())
    if any(str(key).startswith("lora_") for key in names):
        return "lora"
    return "pretrain" if "model_name" in names else "full"


def _set_precision(config: NativeConfig) -> None:
    given = config.keys.text("precision")
    if given and given.value in _PRECISIONS:
        dtype, autocast = _PRECISIONS[given.value]
        config.put("weights.dtype", given, dtype)
        config.put("precision.autocast", given, autocast)
    else:
        config.builder.default("weights.dtype", "float32", "bf16-mixed: what get_default_supported_precision says")
        config.builder.default("precision.autocast", "bfloat16", "bf16-mixed: default of litgpt")


def _set_model(config: NativeConfig, script: str) -> None:
    builder, keys = config.builder, config.keys
    names = ("model_name", "checkpoint_dir") if script == "pretrain" else ("checkpoint_dir",)
    given = keys.text(*names)
    if given is None or is_blank(given.value):
        builder.assumed("model", None, "no key names the checkpoint")
    else:
        reference = hub_id(str(given.value))
        model = find_model(reference, config.document.path, config.project.root)
        note = f"{reference} as LitGPT builds it: the head is not tied"
        config.put("model", given, changed(model.config, reference) if model else reference, note if model else "")
    if script in ADAPTERS:
        builder.derived("method", "adapter", f"{script} of the command")
        builder.derived("adapter.type", script, "the command")
        builder.derived("adapter.dtype", builder.job.weights.dtype, "adapters have the dtype of the weights")
        _set_quantization(config)
        return
    if script != "lora":
        builder.derived("method", "full", f"litgpt {script}")
        return
    builder.derived("method", "lora", "the LoRA script")
    kind = builder.job.model.get("model_type") if isinstance(builder.job.model, dict) else None
    chosen = []
    for name in _LORA:
        flag = keys.flag(f"lora_{name}")
        if flag.value if flag else default(NAME, f"lora_{name}"):
            chosen.append(name)
    builder.derived("adapter.type", "lora", "the LoRA script")
    for name, field in (("lora_r", "r"), ("lora_alpha", "alpha"), ("lora_dropout", "dropout")):
        number = keys.number(name)
        if number:
            config.put(f"adapter.{field}", number, int(number.value) if name == "lora_r" else number.value)
        else:
            builder.default(f"adapter.{field}", default(NAME, name))
    builder.derived("adapter.targets", lora_targets(chosen, kind), "lora_query, lora_key ... of LitGPT's layers")
    builder.derived("adapter.dtype", builder.job.weights.dtype, "adapters have the dtype of the weights")
    _set_quantization(config)


def _set_quantization(config: NativeConfig) -> None:
    given = config.keys.text("quantize")
    if given is None or is_blank(given.value):
        return
    try:
        packed = quantization_of(given.value)
    except ValueError:
        return
    if packed is None:
        return
    config.put("weights.quantization", given, packed)
    if config.builder.job.precision.autocast:
        precision = config.keys.text("precision")
        stated = precision.value if precision else "unset, which means bf16-mixed"
        config.contradiction(given, f"precision is {stated}", "LitGPT stops: no quantisation with mixed precision")


def _set_gpus(config: NativeConfig, script: str) -> None:
    """devices x num_nodes; more than one shards: LoRA with FSDP2, full and pretraining with FSDP 1, all by block.

    Fine-tuning checkpoints every block then; a single device checkpoints nothing.
    """
    builder, keys = config.builder, config.keys
    devices, nodes = keys.integer("devices", least=1), keys.integer("num_nodes", least=1)
    count = nodes.value if nodes else 1
    stated = Stated(devices.value * count, devices.entry, devices.key, "devices x num_nodes") if devices else None
    if devices is None and keys.raw("devices") is None and script != "pretrain":
        builder.default("hardware.gpus", count, f"devices 1: default of {UPSTREAM}")
        if config.project.gpus is not None:
            set_hardware(builder, config.project, None, sharded=False)
    else:
        set_hardware(builder, config.project, stated, sharded=script == "pretrain" and stated is None)
    if nodes and config.project.nodes is None:
        config.put("hardware.nodes", nodes)
    gpus = builder.job.hardware.gpus or 1
    if gpus < 2:
        builder.default("activation_checkpointing", "none", "one device checkpoints nothing")
        return
    if script == "pretrain":
        builder.default("activation_checkpointing", "none", "pretraining checkpoints nothing")
    else:
        builder.default("activation_checkpointing", "full", "several devices: every block is checkpointed")
    fsdp = "parallelism.fsdp."
    note = "litgpt/finetune/lora.py parallelize_fn" if script == "lora" else "FSDPStrategy of Lightning Fabric"
    builder.default(f"{fsdp}version", 2 if script == "lora" else 1, note)
    builder.default(f"{fsdp}wrap", "transformer", note)
    builder.default(f"{fsdp}wrap_adapters", False, note)
    if script == "pretrain":
        builder.default(f"{fsdp}sharding", "hybrid_shard", note)
    if script != "lora" and builder.job.precision.autocast:
        builder.default(f"{fsdp}mixed_precision.reduce_dtype", "bfloat16", "FSDPPrecision bf16-mixed of Fabric")
    quantize = keys.text("quantize")
    if quantize and builder.job.weights.quantization is not None:
        config.contradiction(quantize, f"there are {gpus} devices", "LitGPT stops: quantisation needs devices: 1")


def _set_batch(config: NativeConfig, script: str) -> None:
    builder, train = config.builder, config.keys.mapping("train")
    whole, micro = _BATCHES["pretrain" if script == "pretrain" else "finetune"]
    size = config.count("micro_batch_size", train.integer("micro_batch_size", least=1), micro)
    given = train.integer("global_batch_size", least=1)
    total = given.value if given else whole
    steps = max(1, total // (builder.job.hardware.gpus or 1) // (size or 1))
    note = f"global batch {total} over the devices and micro batches"
    if given:
        config.put("gradient_accumulation_steps", given, steps, note)
    else:
        builder.default("gradient_accumulation_steps", steps, note)
    length = train.integer("max_seq_length", least=1)
    block = builder.job.model.get("max_position_embeddings") if isinstance(builder.job.model, dict) else None
    if length:
        config.put("sequence_length", length)
    elif script == "pretrain" and as_integer(block):
        builder.derived("sequence_length", block, "the block size of the model", "model")
    else:
        builder.assumed("sequence_length", None, "train.max_seq_length bounds the rows, and is not stated")
    if script == "pretrain":
        builder.derived("packing", True, "pretraining reads rows of the block size", "objective")
        builder.default("compile", True, "pretrain.py compiles the model")
    elif not length:
        builder.default("longest_batch_first", True, "the first step takes the longest sample")


def _set_optimizer(config: NativeConfig, script: str) -> None:
    """The class that `optimizer` names; bitsandbytes' PagedAdamW over a quantised base."""
    builder, keys = config.builder, config.keys
    if builder.job.weights.quantization is not None:
        note = "instantiate_bnb_optimizer takes PagedAdamW for any AdamW"
        builder.derived("optimizer.name", "paged_adamw_32bit", note, "weights.quantization")
        return
    given = keys.text("optimizer") or keys.mapping("optimizer").text("class_path")
    name = optimizer_of(str(given.value)) if given else "adamw_torch"
    if script == "pretrain" and name == "adamw_torch":
        name = "adamw_torch_fused"
    if given:
        config.put("optimizer.name", given, name)
    else:
        builder.default("optimizer.name", name)


describe, edits = written_by("native.litgpt_edits")


FORMAT = Format(NAME, "LitGPT config", UPSTREAM, recognise, read, describe, edits, "devices x num_nodes")
