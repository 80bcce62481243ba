"""lingua (Meta): the YAML of apps/*/train.py.

Facts from lingua 437d680 (apps/main, apps/mamba, lingua/distributed.py, lingua/optim.py), read statically. Weights are
float32; FSDP2 gathers them in `model_dtype` and reduces in float32, one unit a layer, kept whole until backward.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..core.backends.fsdp import FSDP
from ..core.backends.plain import size
from ..core.backends.training_loop import USUAL, pretrains, runs_on
from ..core.bindings.kinds import FLAG, NUMBER, POSITIVE, TEXT, integer
from ..core.bindings.reader import Reader
from ..core.bindings.rows import NEVER, Default, Derived, Fixed, Key, Table, within
from ..core.bindings.spelling import DTYPE
from ..core.decoder_config import decoder, multiple
from ..core.format import Format, NoJobError, Reading
from ..core.keys import key_problems
from ..core.world_size import Stated, set_hardware

if TYPE_CHECKING:
    from ...job.job import Job
    from ...source.document import Document
    from ..core.format import Project
    from ..core.key_changes import Keys

NAME = "lingua"
UPSTREAM = "lingua 437d680"

_ROWS = re.compile(r"(?<![0-9])(\d{2,3})k(?![a-z0-9])", re.IGNORECASE)
_SPECIAL = 256
"""Tokens that lingua's TikTokenTokenizer puts behind those of its file."""


def read(document: Document, project: Project) -> Reading:
    """The Job of a pretraining run. Raises NoJobError for recurrent networks of lingua's own."""
    reader = Reader(document, project, NAME, UPSTREAM)
    kind = reader.value(TEXT, "model_type")
    if kind:
        raise NoJobError(document.path, f"{kind}: a recurrent network of lingua's own")
    if reader.keys.raw("model.dimensions", "model.n_future_head"):
        raise NoJobError(document.path, "a hierarchical model, or one with heads for several tokens, of lingua's own")
    reader.bind(TABLE.rows)
    reader.reading.problems = key_problems(document, NAME)
    return reader.reading


def _set_gpus(reader: Reader) -> None:
    section = reader.section("distributed")
    ranks, each = reader.job.parallelism.tensor, section.given(POSITIVE, "dp_replicate", "dp_shard")
    for name in ("dp_shard", "dp_replicate"):
        ranks *= section.value(POSITIVE, name, default=1)
    stated = Stated(ranks, each.entry, each.key, "dp_replicate x dp_shard x tp_size") if each else None
    set_hardware(reader, reader.project, stated, sharded=True)


def _vocabulary(reader: Reader) -> tuple[int | None, str]:
    """Rows of the embedding, and a note where they are read from the tokenizer's name: its file is elsewhere."""
    stated = reader.value(POSITIVE, "model.vocab_size")
    if stated:
        return stated, ""
    kind, path = (reader.value(TEXT, f"data.tokenizer.{key}", default="") for key in ("name", "path"))
    if kind == "bytes":
        return 258, "the tokens of ByteTokenizer"
    match = _ROWS.search(path.rpartition("/")[2])
    if match is None:
        return None, ""
    rows = int(match[1]) * 1000 + (_SPECIAL if kind == "tiktoken" else 0)
    return rows, f"{rows} tokens, as the tokenizer is called"


def _set_model(reader: Reader) -> None:
    """`model` as a Llama of Transformers, or as a Mamba 2 where it has states."""
    model, (rows, told) = reader.section("model"), _vocabulary(reader)
    if rows is None:
        reader.assumed("model", None, "the vocabulary is that of a tokenizer file which is elsewhere")
        return
    states = any(key in model.keys for key in ("state_dim", "n_groups", "conv_size"))
    found = (_mamba if states else _llama)(model, rows)
    note = "; ".join(part for part in (f"the stated sizes, as a {found['model_type']} of Transformers", told) if part)
    given = model.given(POSITIVE, "dim", "n_layers")
    if told and given:
        reader.assumed("model", found, note)
        place = given.entry.value.span
        origin = reader.job.origins["model"]._replace(file=reader.document.path, key=given.key, span=place)
        reader.job.origins["model"] = origin
    else:
        reader.set("model", given, found, note)


def _sizes(model: Reader, factor: int) -> tuple[int, int, int]:
    """Width, layers and the width inside: 2/3 of `factor` x width, times the multiplier, in whole multiples."""
    hidden, depth = model.value(POSITIVE, "dim", default=512), model.value(POSITIVE, "n_layers", default=8)
    inner = int(model.value(NUMBER, "ffn_dim_multiplier", default=1) * int(2 * factor * hidden / 3))
    return hidden, depth, multiple(inner, model.value(POSITIVE, "multiple_of", default=256))


def _llama(model: Reader, rows: int) -> dict[str, Any]:
    hidden, depth, inner = _sizes(model, 4)
    heads, each = model.value(POSITIVE, "n_heads"), model.value(POSITIVE, "head_dim")
    each = each or (hidden // heads if heads else 64)
    return decoder(
        f"lingua-{depth}x{hidden}", "llama", hidden=hidden, layers=depth, heads=heads or hidden // each,
        kv_heads=model.value(POSITIVE, "n_kv_heads"), head_dim=each, vocabulary=rows, intermediate=inner,
        tie_word_embeddings=model.value(FLAG, "weight_tying", default=False),
    )  # fmt: skip


def _mamba(model: Reader, rows: int) -> dict[str, Any]:
    hidden, depth, inner = _sizes(model, 3)
    heads = model.value(POSITIVE, "n_heads", default=8)
    return {
        "model_type": "mamba2", "_name_or_path": f"lingua-{depth}x{hidden}", "hidden_size": hidden,
        "num_hidden_layers": depth, "vocab_size": rows, "num_heads": heads, "head_dim": inner // heads,
        "expand": inner / hidden, "state_size": model.value(POSITIVE, "state_dim", default=128),
        "n_groups": model.value(POSITIVE, "n_groups", default=1),
        "conv_kernel": model.value(POSITIVE, "conv_size", default=4),
        "tie_word_embeddings": model.value(FLAG, "weight_tying", default=False),
    }  # fmt: skip


def _is_divided(job: Job) -> bool:
    return job.parallelism.fsdp is not None and job.parallelism.fsdp.sharding != "no_shard"


def _sharding(reading: Reading, value: str) -> Keys | None:
    """Over all data parallel ranks; layers stay whole between forward and backward, whatever the name says."""
    if value not in ("full_shard", "shard_grad_op"):
        return None
    job = reading.job
    ranks = max(1, (job.hardware.gpus or 1) // job.parallelism.tensor)
    return {"distributed.fsdp_type": "full_shard", "distributed.dp_shard": ranks, "distributed.dp_replicate": 1}


_PLAN = "build_fsdp_grouping_plan"
_KEPT = "every product and attention is kept, counted as attention and every second product"

_DISTRIBUTED = within(
    "distributed",
    Key("parallelism.tensor", "tp_size", POSITIVE),
    _set_gpus,
    Fixed(f"{FSDP}version", Default(2, _PLAN)),
    Fixed(f"{FSDP}wrap", Default("transformer", _PLAN)),
    Fixed(f"{FSDP}outer", Default("separate", _PLAN)),
    Fixed(f"{FSDP}reshard_after_forward", Default(False, f"{_PLAN} keeps layers whole")),
    Key(
        f"{FSDP}sharding", "fsdp_type", TEXT, "no_shard",
        lambda word, _: word if word == "no_shard" else "shard_grad_op", NEVER,
    ),
    Key(
        f"{FSDP}shard_size", "dp_shard", integer(2),
        Default(None, "dp_shard 1: the ranks of dp_replicate share the model"), when=_is_divided,
    ),
    Key(f"{FSDP}mixed_precision.param_dtype", "model_dtype", DTYPE, "bfloat16"),
    Fixed(f"{FSDP}mixed_precision.reduce_dtype", "float32"),
    Key(
        "activation_checkpointing", "selective_activation_checkpointing", FLAG, to={True: "selective"},
        back={"selective": True, "none": False}, note=_KEPT,
    ),
    Fixed(
        "checkpoint_policy", Derived("every_second_matmul", _KEPT, "activation_checkpointing"),
        when=lambda job: job.activation_checkpointing == "selective",
    ),
    Key("compile", "compile", FLAG),
    Key("precision.compute", "float8_recipe", TEXT, to=lambda _, __: "float8"),
)  # fmt: skip
"""`full_shard` over `dp_shard` ranks, over all of them where that is 1, since FSDP then gets the mesh of
`dp_replicate` (distributed.py `parallelize_model`); `no_shard` gathers nothing but keeps the policy of dtypes."""

TABLE = Table(
    (
        *runs_on(),
        *pretrains("lingua", "a run of train.py"),
        Fixed("weights.dtype", Default("float32", "lingua makes its weights in float32")),
        *_DISTRIBUTED,
        _set_model,
        size("micro_batch_size", "data.batch_size", 2),
        size("sequence_length", "data.seq_len", 2048),
        Key("gradient_accumulation_steps", "grad_acc_steps", POSITIVE, 1),
        Fixed("optimizer.name", Default("adamw_torch_fused", "AdamW(fused=True) of build_optimizer")),
        Fixed("loss.upcast", Default("loss", "cross_entropy makes the logits float32")),
        *USUAL,
    ),
    says={"parallelism.fsdp.sharding": _sharding},
    ignored=frozenset({"checkpoint_policy"}),
)

FORMAT = Format.of_table(
    NAME, "lingua config", UPSTREAM, read, TABLE, "dp_replicate x dp_shard x tp_size"
)  # fmt: skip
