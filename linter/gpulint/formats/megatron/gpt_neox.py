"""GPT-NeoX: YAML of NeoXArgs with the DeepSpeed config inside.

Facts from gpt-neox 2.0 at ea7aefd8 (megatron/neox_arguments/*.py, megatron/tokenizer), read statically. Keys have
dashes or underscores; several files of one run may be joined, so that one file may be a part.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ...source.node import Entry, Node, Span
from ..core.flat_keys import unknown_flat_keys
from ..core.format import Format, NoJobError, Problem, Reading, written_by
from ..core.native import NativeConfig
from ..core.world_size import Stated, set_hardware
from ..deepspeed.config import apply
from ..deepspeed.values import AutoValues
from .model import GPT2_VOCABULARY, Sizes, config_of, dropped, feed_forward, padded

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import Project

NAME = "gpt_neox"
UPSTREAM = "gpt-neox 2.0"

_DEEPSPEED = (
    "zero_optimization", "fp16", "bf16", "optimizer", "train_batch_size", "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps", "gradient_clipping",
)  # fmt: skip
_HF_ROWS = 50277
"""Rows of the Pile's tokenizer (20B_tokenizer.json), which HFTokenizer reads."""

_GPUS = re.compile(r"(?:trained|run|train) on (\d{1,5}) (?:gpu|A100|H100|V100)", re.IGNORECASE)
_OPTIMIZERS = {"adam": "adamw_torch_fused", "adamw": "adamw_torch_fused", "onebitadam": "onebitadam", "sgd": "sgd"}


def _name(key: Any) -> str:
    return str(key).replace("-", "_")


_PART = frozenset(
    {
        "train_iters", "lr_decay_iters", "data_impl", "checkpoint_activations", "partition_activations", "eval_iters",
        "pipe_parallel_size", "model_parallel_size", "synchronize_each_layer", "distributed_backend",
    }
)  # fmt: skip
"""Keys of NeoX's own, of which a part of a run has several beside its DeepSpeed keys."""


def recognise(document: Document) -> bool:
    """`num-layers` beside parallel sizes or NeoX's batch key; a part of a run has its training keys and DeepSpeed's."""
    names = {_name(key) for key in document.root.keys()}  # noqa: SIM118
    if document.syntax != "yaml" or names & {"extends", "tensor_model_parallel_size"}:
        return False
    if "num_layers" not in names:
        return len(names & _PART) >= 3 and bool(names & {"zero_optimization", "train_micro_batch_size_per_gpu"})
    return bool(
        names & {"pipe_parallel_size", "model_parallel_size", "gpt_j_residual", "train_micro_batch_size_per_gpu"}
        and names & {"hidden_size", "num_attention_heads"}
    )


def read(document: Document, project: Project) -> Reading:
    """The Job of a pretraining run. Raises NoJobError for a part of one."""
    if all(_name(key) != "num_layers" for key in document.root.keys()):  # noqa: SIM118  (a Node)
        raise NoJobError(document.path, "a part of a GPT-NeoX run: the model stands in another file")
    config = NativeConfig(NAME, UPSTREAM, document, project, None, dashes=True)
    builder, keys = config.builder, config.keys
    kind = keys.raw("attention_config")
    if kind and any(word in str(kind.value) for word in ("mamba", "rwkv", "gmlp", "sparse")):
        raise NoJobError(document.path, "attention-config has layers that are no plain attention")
    builder.derived("kind", "training", "a training run of GPT-NeoX")
    builder.derived("objective", "pretrain", "GPT-NeoX pretrains")
    builder.derived("packing", True, "rows are cut out of a stream of tokens", "objective")
    for path, key in (("parallelism.tensor", "model_parallel_size"), ("parallelism.pipeline", "pipe_parallel_size")):
        given = keys.integer(key, least=1)
        if given:
            config.put(path, given)
        else:
            builder.default(path, 1)
    sequence = keys.flag("sequence_parallel")
    if sequence:
        config.put("parallelism.sequence", sequence)
    _set_model(config)
    _set_gpus(config)
    config.count("sequence_length", keys.integer("seq_length", least=1), None, keys.blank("seq_length"))
    _set_deepspeed(config)
    _set_checkpointing(config)
    flash = kind is not None and "flash" in str(kind.value)
    if kind:
        config.put("attention", kind, "flash_attention_2" if flash else "eager")
    else:
        builder.default("attention", "eager", "attention-config global: default of gpt-neox")
    config.fill()
    config.reading.problems[:0] = unknown_flat_keys(document, NAME, UPSTREAM, lambda key, *_: key.startswith("_"))
    return config.reading


def _set_model(config: NativeConfig) -> None:
    builder, keys = config.builder, config.keys
    layers, hidden = keys.integer("num_layers", least=1), keys.integer("hidden_size", least=1)
    heads = keys.integer("num_attention_heads", least=1)
    if layers is None or hidden is None or heads is None:
        builder.assumed("model", None, "num-layers, hidden-size or num-attention-heads stands in another file")
        return
    activation = keys.text("activation")
    gated = activation is not None and activation.value in ("swiglu", "geglu")
    width, groups = keys.integer("intermediate_size", least=1), keys.integer("num_kv_heads", least=1)
    tokenizer, stated = keys.text("tokenizer_type"), keys.integer("padded_vocab_size", least=1)
    rows = _HF_ROWS if tokenizer and tokenizer.value == "HFTokenizer" else GPT2_VOCABULARY
    divisor = keys.integer("make_vocab_size_divisible_by", least=1)
    kind = keys.text("pos_emb")
    positions = keys.integer("max_position_embeddings", least=1)
    learned = kind is None or kind.value == "learned"
    sizes = Sizes(
        hidden.value, layers.value, heads.value,
        stated.value if stated else padded(rows, divisor.value if divisor else 128, builder.job.parallelism.tensor),
        width.value if width else feed_forward(hidden.value, gated=gated), groups=groups.value if groups else None,
        gated=gated, tied=not keys.is_on("no_weight_tying"),
        learned_positions=positions.value if learned and positions else 0,
    )  # fmt: skip
    model = config_of(f"neox-{sizes.layers}x{sizes.hidden}", dropped(sizes, keys, 0.0))
    config.put("model", layers, model, f"the stated dimensions, as a {model['model_type']} of Transformers")


def _set_gpus(config: NativeConfig) -> None:
    """num_nodes x num_gpus, or what a comment says ("trained on 64 gpus"), or what makes the batch size."""
    keys = config.keys
    nodes, gpus = keys.integer("num_nodes", least=1), keys.integer("num_gpus", least=1)
    whole = keys.integer("global_num_gpus", least=1)
    stated = None
    if whole:
        stated = Stated(whole.value, whole.entry, whole.key)
    elif gpus:
        stated = Stated(gpus.value * (nodes.value if nodes else 1), gpus.entry, gpus.key, "num_gpus x num_nodes")
    else:
        for comment in config.document.comments:
            match = _GPUS.search(comment.text)
            if match:
                place = Node("scalar", None, Span(comment.line, 1, comment.line, 1, 0, 0))
                stated = Stated(int(match[1]), Entry(place, place), "comment", "the file's comment")
                break
    set_hardware(config.builder, config.project, stated, sharded=True)


def _set_deepspeed(config: NativeConfig) -> None:
    """The sections that DeepSpeed gets, read as DeepSpeed reads them; batch sizes are those of a data parallel rank."""
    builder, keys = config.builder, config.keys
    plan = builder.job.parallelism
    world = max(1, (builder.job.hardware.gpus or 1) // (plan.tensor * plan.pipeline))
    micro = keys.integer("train_micro_batch_size_per_gpu", "batch_size", least=1)
    config.count("micro_batch_size", micro, None, keys.blank("train_micro_batch_size_per_gpu"))
    steps = keys.integer("gradient_accumulation_steps", "gas", least=1)
    total = keys.integer("train_batch_size", least=1)
    size = builder.job.micro_batch_size
    if steps:
        config.put("gradient_accumulation_steps", steps)
    elif total and size:
        config.put("gradient_accumulation_steps", total, max(1, total.value // size // world), f"over {world} ranks")
    else:
        builder.default("gradient_accumulation_steps", 1)
    root = Node("mapping", [], config.document.root.span)
    for entry in config.document.root.entries():
        name = _name(entry.key.value)
        if name in _DEEPSPEED[:3]:
            key = Node("scalar", name, entry.key.span, entry.key.raw)
            root.value.append(Entry(key, entry.value))
    part = config.document._replace(roots=[root])
    values = AutoValues(client="", micro_batch_size=size, gradient_accumulation_steps=1, world_size=world)
    problems = apply(builder, part, values)
    config.reading.problems += [item for item in problems if not _passed_over(item)]
    precision = keys.text("precision")
    if precision and builder.job.weights.dtype is None:
        dtype = {"fp16": "float16", "bfloat16": "bfloat16"}.get(precision.value, "float32")
        config.put("weights.dtype", precision, dtype)
        if dtype != "float32":
            builder.derived("precision.master_weights", True, "DeepSpeed keeps fp32 masters", "weights.dtype")
    elif builder.job.weights.dtype is None:
        builder.default("weights.dtype", "float32", "neither fp16 nor bf16 is on")
    kind = keys.mapping("optimizer").text("type")
    name = str(kind.value).lower() if kind else "adam"
    packed = keys.flag("use_bnb_optimizer")
    if packed and packed.value and name == "adam":
        config.put("optimizer.name", packed, "adamw_bnb_8bit", "bitsandbytes' Adam8bit")
    elif kind:
        config.put("optimizer.name", kind, "adamw_bnb_8bit" if "8bit" in name else _OPTIMIZERS.get(name, name))
    else:
        builder.default("optimizer.name", "adamw_torch_fused", "Adam: default of gpt-neox")


def _passed_over(problem: Problem) -> bool:
    """What DeeperSpeed, the fork of DeepSpeed that gpt-neox pins (requirements.txt: 91d1c55), takes without a word.

    Its precision sections are plain dictionaries, of which no key and no type is checked (`runtime/config.py`
    `get_fp16_enabled`, `get_scalar_param`): pythia's files hold {"fp16": {"fp16": true}}.
    """
    return problem.kind in ("unknown-key", "wrong-type") and problem.key.startswith(("fp16.", "bf16."))


def _set_checkpointing(config: NativeConfig) -> None:
    given, layers = config.keys.flag("checkpoint_activations"), config.keys.integer("checkpoint_num_layers", least=1)
    if given is None:
        config.builder.default("activation_checkpointing", "none")
        return
    offload = config.keys.is_on("checkpoint_in_cpu")
    mode = ("offload" if offload else "full") if given.value else "none"
    note = f"one checkpoint every {layers.value} layers, counted as one a layer" if layers and layers.value > 1 else ""
    config.put("activation_checkpointing", given, mode, note)
    config.builder.derived("reentrant", True, "DeepSpeed's checkpoint function", "activation_checkpointing")


describe, edits = written_by("megatron.gpt_neox_edits")


FORMAT = Format(
    NAME, "GPT-NeoX config", UPSTREAM, recognise, read, describe, edits, "num_nodes x num_gpus, or a comment"
)
