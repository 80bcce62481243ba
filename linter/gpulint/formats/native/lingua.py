"""lingua (Meta): the YAML of apps/*/train.py.

Facts from lingua 437d680 (apps/main, apps/mamba, lingua/distributed.py, lingua/optim.py), read statically. Weights are
float32; FSDP2 gathers them in `model_dtype` and reduces in float32, one unit a layer, kept whole until backward.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..core.format import Format, NoJobError, Reading, written_by
from ..core.keys import key_problems
from ..core.native import DTYPES, NativeConfig, decoder, multiple
from ..core.world_size import Stated, set_hardware

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.arguments import Arguments
    from ..core.format import Project

NAME = "lingua"
UPSTREAM = "lingua 437d680"

_SIGNS = frozenset({"fsdp_type", "model_dtype", "selective_activation_checkpointing", "dp_shard", "dp_replicate"})
_ROWS = re.compile(r"(?<![0-9])(\d{2,3})k(?![a-z0-9])", re.IGNORECASE)
_SPECIAL = 256
"""Tokens that lingua's TikTokenTokenizer puts behind those of its file."""


def recognise(document: Document) -> bool:
    """`distributed` with lingua's keys beside `model` or `data` with a batch."""
    root = document.root
    section = root.get("distributed")
    if document.syntax not in ("yaml", "flags") or section is None or not section.is_mapping:
        return False
    return not _SIGNS.isdisjoint(section.keys()) and root.find("data.batch_size") is not None


def read(document: Document, project: Project) -> Reading:
    """The Job of a pretraining run. Raises NoJobError for recurrent networks of lingua's own."""
    config = NativeConfig(NAME, UPSTREAM, document, project, None)
    builder, keys = config.builder, config.keys
    kind = keys.text("model_type")
    if kind:
        raise NoJobError(document.path, f"{kind.value}: a recurrent network of lingua's own")
    model = keys.mapping("model")
    if "dimensions" in model or "n_future_head" in model:
        raise NoJobError(document.path, "a hierarchical model, or one with heads for several tokens, of lingua's own")
    builder.derived("kind", "training", "a run of train.py")
    builder.derived("objective", "pretrain", "lingua pretrains")
    builder.derived("packing", True, "rows are cut out of a stream of tokens", "objective")
    _set_sharding(config, keys.mapping("distributed"))
    _set_model(config, model)
    data = keys.mapping("data")
    config.count("micro_batch_size", data.integer("batch_size", least=1), 2, data.blank("batch_size"))
    config.count("sequence_length", data.integer("seq_len", least=1), 2048, data.blank("seq_len"))
    config.count("gradient_accumulation_steps", keys.integer("grad_acc_steps", least=1), 1)
    builder.default("optimizer.name", "adamw_torch_fused", "AdamW(fused=True) of build_optimizer")
    builder.default("loss.upcast", "loss", "cross_entropy makes the logits float32")
    config.fill()
    config.reading.problems[:0] = key_problems(document, NAME)
    return config.reading


def _set_sharding(config: NativeConfig, section: Arguments) -> None:
    """`full_shard` over `dp_shard` ranks, over all of them where that is 1, since FSDP then gets the mesh of
    `dp_replicate` (distributed.py `parallelize_model`); `no_shard` gathers nothing but keeps the policy of dtypes.
    """
    builder, fsdp = config.builder, "parallelism.fsdp."
    tensor = section.integer("tp_size", least=1)
    if tensor:
        config.put("parallelism.tensor", tensor)
    shard, copies = section.integer("dp_shard", least=1), section.integer("dp_replicate", least=1)
    ranks = (shard.value if shard else 1) * (copies.value if copies else 1)
    each = copies or shard
    stated = None
    if each:
        total = ranks * builder.job.parallelism.tensor
        stated = Stated(total, each.entry, each.key, "dp_replicate x dp_shard x tp_size")
    set_hardware(builder, config.project, stated, sharded=True)
    builder.default("weights.dtype", "float32", "lingua makes its weights in float32")
    dtype = section.text("model_dtype")
    low = DTYPES.get(dtype.value, "bfloat16") if dtype else "bfloat16"
    for name, value in (("version", 2), ("wrap", "transformer"), ("outer", "separate")):
        builder.default(f"{fsdp}{name}", value, "build_fsdp_grouping_plan")
    kind = section.text("fsdp_type")
    whole = kind is None or kind.value == "no_shard"
    builder.default(f"{fsdp}reshard_after_forward", False, "build_fsdp_grouping_plan keeps layers whole")
    if kind:
        config.put(f"{fsdp}sharding", kind, "no_shard" if whole else "shard_grad_op")
    else:
        builder.default(f"{fsdp}sharding", "no_shard")
    if shard and not whole and shard.value > 1:
        config.put(f"{fsdp}shard_size", shard)
    elif not whole:
        builder.default(f"{fsdp}shard_size", None, "dp_shard 1: the ranks of dp_replicate share the model")
    if dtype:
        config.put(f"{fsdp}mixed_precision.param_dtype", dtype, low)
    else:
        builder.default(f"{fsdp}mixed_precision.param_dtype", low)
    builder.default(f"{fsdp}mixed_precision.reduce_dtype", "float32")
    recompute = section.flag("selective_activation_checkpointing")
    if recompute and recompute.value:
        note = "every product and attention is kept, counted as attention and every second product"
        config.put("activation_checkpointing", recompute, "selective", note)
        builder.derived("checkpoint_policy", "every_second_matmul", note, "activation_checkpointing")
    compiled = section.flag("compile")
    if compiled:
        config.put("compile", compiled)
    if section.text("float8_recipe"):
        recipe = section.text("float8_recipe")
        assert recipe is not None
        config.put("precision.compute", recipe, "float8")


def _vocabulary(config: NativeConfig, model: Arguments) -> tuple[int | None, str]:
    """Rows of the embedding, and a note where they are read from the tokenizer's name: its file is elsewhere."""
    given = model.integer("vocab_size", least=1)
    if given:
        return int(given.value), ""
    tokenizer = config.keys.mapping("data").mapping("tokenizer")
    kind, path = tokenizer.text("name"), tokenizer.text("path")
    if kind and kind.value == "bytes":
        return 258, "the tokens of ByteTokenizer"
    match = _ROWS.search(path.value.rpartition("/")[2]) if path else None
    if match is None or path is None:
        return None, ""
    rows = int(match[1]) * 1000 + (_SPECIAL if kind and kind.value == "tiktoken" else 0)
    return rows, f"{rows} tokens, as the tokenizer is called"


def _set_model(config: NativeConfig, model: Arguments) -> None:
    """`model` as a Llama of Transformers, or as a Mamba 2 where it has states."""
    builder = config.builder
    width, layers = model.integer("dim", least=1), model.integer("n_layers", least=1)
    rows, told = _vocabulary(config, model)
    if rows is None:
        builder.assumed("model", None, "the vocabulary is that of a tokenizer file which is elsewhere")
        return
    hidden, depth = (width.value if width else 512), (layers.value if layers else 8)
    heads, groups = model.integer("n_heads", least=1), model.integer("n_kv_heads", least=1)
    size, step = model.integer("head_dim", least=1), model.integer("multiple_of", least=1)
    factor = model.number("ffn_dim_multiplier")
    tied = model.is_on("weight_tying")
    name = f"lingua-{depth}x{hidden}"
    states = "state_dim" in model or "n_groups" in model or "conv_size" in model
    inner = int(2 * (3 if states else 4) * hidden / 3)
    inner = multiple(int(factor.value * inner) if factor else inner, step.value if step else 256)
    if states:
        found = _mamba(model, name, hidden, depth, rows, inner)
    else:
        each = size.value if size else hidden // heads.value if heads else 64
        number = heads.value if heads else hidden // each
        found = decoder(
            name, "llama", hidden=hidden, layers=depth, heads=number, vocabulary=rows, intermediate=inner,
            kv_heads=groups.value if groups else None, head_dim=each, tie_word_embeddings=tied,
        )  # fmt: skip
    note = "; ".join(part for part in (f"the stated sizes, as a {found['model_type']} of Transformers", told) if part)
    given = width or layers
    if given and not told:
        config.put("model", given, found, note)
    elif given:
        builder.assumed("model", found, note)
        builder.job.origins["model"] = builder.job.origins["model"]._replace(
            file=config.document.path, key=given.key, span=given.entry.value.span
        )
    else:
        builder.default("model", found, note)


def _mamba(model: Arguments, name: str, hidden: int, depth: int, rows: int, inner: int) -> dict[str, Any]:
    heads, states = model.integer("n_heads", least=1), model.integer("state_dim", least=1)
    groups, kernel = model.integer("n_groups", least=1), model.integer("conv_size", least=1)
    number = heads.value if heads else 8
    return {
        "model_type": "mamba2", "_name_or_path": name, "hidden_size": hidden, "num_hidden_layers": depth,
        "vocab_size": rows, "num_heads": number, "head_dim": inner // number, "expand": inner / hidden,
        "state_size": states.value if states else 128, "n_groups": groups.value if groups else 1,
        "conv_kernel": kernel.value if kernel else 4, "tie_word_embeddings": model.is_on("weight_tying"),
    }  # fmt: skip


describe, edits = written_by("native.lingua_edits")


FORMAT = Format(NAME, "lingua config", UPSTREAM, recognise, read, describe, edits, "dp_replicate x dp_shard x tp_size")
