"""OLMo (allenai/OLMo): TrainConfig YAML of scripts/train.py.

Facts from ai2-olmo 0.6.0 (olmo/config.py, olmo/model.py, olmo/train.py), read statically. Weights are float32 under
autocast; FSDP 1 gathers and reduces as `fsdp.precision` says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...upstream import olmo
from ..core.backends.fsdp import FSDP, may_shard
from ..core.backends.plain import size
from ..core.backends.training_loop import USUAL, pretrains, runs_on
from ..core.bindings.kinds import ANYTHING, FLAG, POSITIVE, TEXT, WORD, Unsaid
from ..core.bindings.reader import Reader
from ..core.bindings.rows import LEAVE, NEVER, Default, Derived, Fixed, Key, Table, Written, among, only
from ..core.bindings.spelling import optimizer
from ..core.decoder_config import decoder
from ..core.format import Format, Reading
from ..core.interpolation import interpolated
from ..core.keys import key_problems
from ..core.world_size import set_hardware

if TYPE_CHECKING:
    from ...job.job import Job
    from ...source.document import Document
    from ..core.format import Project
    from ..core.key_changes import Keys

NAME = "olmo"
UPSTREAM = "ai2-olmo 0.6.0"

_EVERY = {"one_in_two": 2, "one_in_three": 3, "one_in_four": 4, "one_in_eight": 8}
_MOST = ("two_in_three", "three_in_four")


def read(document: Document, project: Project) -> Reading:
    """The Job of a pretraining run."""
    whole = interpolated(document)
    reader = Reader(whole, project, NAME, UPSTREAM, checked=document)
    reader.bind(TABLE.rows)
    reader.reading.problems = key_problems(whole, NAME)
    return reader.reading


def _set_model(reader: Reader) -> None:
    """ModelConfig as OLMo 2 where norms stand behind attention and MLP, else as OLMo; SwiGLU halves the MLP's width."""
    model = reader.section("model")
    given = model.given(POSITIVE, "d_model")
    hidden = given.value if given else 768
    layers, heads = (model.value(POSITIVE, key, default=12) for key in ("n_layers", "n_heads"))
    gated = model.value(TEXT, "activation_type", default="swiglu") == "swiglu"
    inner = model.value(POSITIVE, "mlp_hidden_size", default=model.value(POSITIVE, "mlp_ratio", default=4) * hidden)
    second = model.value(FLAG, "norm_after") or model.value(FLAG, "attention_layer_norm")
    kind = "olmo2" if second else "olmo" if gated else "gpt_neox"
    found = decoder(
        f"olmo-{layers}x{hidden}", kind, hidden=hidden, layers=layers, heads=heads,
        kv_heads=1 if model.value(FLAG, "multi_query_attention") else model.value(POSITIVE, "n_kv_heads"),
        vocabulary=model.value(POSITIVE, "embedding_size", "vocab_size", default=50304),
        intermediate=inner // 2 if gated else inner,
        tie_word_embeddings=model.value(FLAG, "weight_tying", default=True),
    )  # fmt: skip
    if given:
        reader.set("model", given, found, f"the stated dimensions, as a {kind} of Transformers")
    else:
        reader.assumed("model", None, "model.d_model is filled in elsewhere")


def _set_gpus(reader: Reader) -> None:
    distributed = reader.keys.raw("fsdp", "ddp") is not None
    set_hardware(reader, reader.project, None, sharded=distributed)


def _accumulation(rows: int, job: Job) -> Written:
    gpus = job.hardware.gpus or 1
    return Written(max(1, rows // (gpus * (job.micro_batch_size or 1))), f"over {gpus} GPUs")


def _checkpointing(word: Any, _job: Job) -> Any:
    if not word:
        return Unsaid.OTHER
    if word == "fine_grained":
        return Written("selective", "fine_grained, counted as keeping attention")
    return Written("full", "counted as every layer" if word in _MOST else "")


def _no_fsdp(reader: Reader) -> Any:
    other = reader.value(TEXT, "distributed_strategy", default="fsdp") != "fsdp"
    return Derived(None, "no FSDP, or one GPU") if other or (reader.job.hardware.gpus or 1) < 2 else LEAVE


def _outer(wrapping: str, _job: Job) -> Derived:
    return Derived("separate" if "size" in wrapping else "root", "embedding and head by size", f"{FSDP}wrap")


def _set_mixed_precision(reader: Reader) -> None:
    low, word = reader.job.precision.autocast, reader.value(TEXT, "fsdp.precision", default="pure")
    if low:
        reduced = "float32" if word == "mixed" else low
        reader.derived(f"{FSDP}mixed_precision.param_dtype", low, f"fsdp.precision {word}")
        reader.derived(f"{FSDP}mixed_precision.reduce_dtype", reduced, f"fsdp.precision {word}")


def _sharding(_reading: Reading, value: str) -> Keys | None:
    if value not in ("full_shard", "shard_grad_op", "no_shard"):
        return None
    section = {"sharding_strategy": value.upper(), "wrapping_strategy": "by_block"}
    return {"distributed_strategy": "fsdp", **{f"fsdp.{key}": word for key, word in section.items()}}


_WRAPPING = "fsdp.wrapping_strategy"

_SHARDING = (
    Fixed("parallelism.fsdp", _no_fsdp),
    *only(
        may_shard,
        Fixed(f"{FSDP}version", Default(1, "torch's FullyShardedDataParallel")),
        Fixed(f"{FSDP}sync_each_batch", Default(True, "train_batch of olmo/train.py enters no_sync under DDP alone")),
        Key(
            f"{FSDP}wrap", _WRAPPING, TEXT, Default("none", "wrapping_strategy null: default of FSDPConfig"),
            lambda word, _: "transformer" if "block" in word else "size", NEVER,
        ),
        Key(f"{FSDP}outer", _WRAPPING, TEXT, to=_outer),
        Key(f"{FSDP}sharding", "fsdp.sharding_strategy", WORD, back=NEVER),
        _set_mixed_precision,
    ),
)  # fmt: skip

TABLE = Table(
    (
        *runs_on(olmo.NAME),
        *pretrains("OLMo", "a run of scripts/train.py"),
        _set_model,
        Key("attention", "model.flash_attention", FLAG, to={True: "flash_attention_2", False: "sdpa"}),
        Fixed("weights.dtype", Default("float32", "OLMo makes its weights in float32")),
        Key(
            "precision.autocast", "precision", TEXT, Default(None, "precision null: default of OLMo"),
            {"amp_bf16": "bfloat16", "amp_fp16": "float16", "fp32": None}, other=None,
        ),
        _set_gpus,
        size("sequence_length", "model.max_sequence_length", 1024),
        size("micro_batch_size", "device_train_microbatch_size", 16),
        Key(
            "gradient_accumulation_steps", "global_train_batch_size", POSITIVE,
            lambda reader: Default(_accumulation(512, reader.job).value, "global_train_batch_size 512"), _accumulation,
        ),
        Key(
            "optimizer.name", "optimizer.name", optimizer(own={"lionw": "lion_pytorch"}, any_other=True),
            Default("lion_pytorch", "lionw: default of OptimizerConfig"), back=among("adamw_torch", "lion_pytorch"),
        ),
        Key(
            "activation_checkpointing", "activation_checkpointing", ANYTHING, "none", _checkpointing,
            {"full": "whole_layer", "selective": "fine_grained", "none": None},
        ),
        Key("checkpoint_every", "activation_checkpointing", ANYTHING, to=_EVERY, back={1: "whole_layer"}),
        *_SHARDING,
        Key("compile", "compile", ANYTHING, to=lambda _, __: True, null=False),
        *USUAL,
    ),
    says={"parallelism.fsdp.sharding": _sharding},
    total="global_train_batch_size",
)  # fmt: skip

FORMAT = Format.of_table(NAME, "OLMo config", UPSTREAM, read, TABLE, "not in the file: the launcher")
