"""LLM Foundry (MosaicML): train.py YAML, alone or as the `parameters` of an mcli run.

Facts from llm-foundry 0.22.0 (command_utils/train.py, utils/config_utils.py, models/mpt, models/hf) and Composer, read
statically. Weights are float32 under `amp_bf16`; FSDP's `mixed_precision` says what is gathered and reduced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.backends.fsdp import FSDP, may_shard
from ..core.backends.plain import size
from ..core.backends.precision import precision
from ..core.backends.training_loop import USUAL, runs_on
from ..core.bindings.kinds import ANYTHING, FLAG, NUMBER, POSITIVE, SECTION, TEXT, WHOLE_TEXT, WORD, WORDS, Unsaid
from ..core.bindings.reader import Reader
from ..core.bindings.rows import LEAVE, NEVER, Assumed, Default, Derived, Fixed, Key, Table, Written, only, within
from ..core.bindings.spelling import COMPOSER, optimizer
from ..core.decoder_config import decoder
from ..core.format import Format, NoJobError, Reading
from ..core.interpolation import interpolated
from ..core.keys import key_problems
from ..core.sections import Sections
from ..core.world_size import Stated, set_hardware

if TYPE_CHECKING:
    from ...job.job import Job
    from ...source.document import Document
    from ..core.format import Project
    from ..core.key_changes import Keys

NAME = "llm_foundry"
UPSTREAM = "llm-foundry 0.22.0"


_OPTIMIZER = optimizer(
    own={"decoupled_lionw_8b": "lion_8bit", "adalr_lion": "lion_pytorch", "clip_lion": "lion_pytorch", "no_op": "sgd"},
    any_other=True,
)


def read(document: Document, project: Project) -> Reading:
    """The Job of a run of train.py."""
    whole = interpolated(document)
    inner = whole.root.get("parameters")
    prefix = "parameters" if inner is not None and inner.is_mapping else ""
    if inner is not None and prefix:
        whole = interpolated(whole._replace(roots=[inner]))
    if whole.root.find("model.name") is None:
        raise NoJobError(document.path, "starts a YAML of llm-foundry's own repository, or prepares data")
    reader = Reader(whole, project, NAME, UPSTREAM, checked=document, keys=Sections(whole.root, prefix))
    if "t5" in reader.value(TEXT, "model.name", default=""):
        raise NoJobError(document.path, "a model with an encoder and a decoder")
    reader.bind(TABLE.rows)
    reader.reading.problems = key_problems(whole, NAME, prefix=prefix)
    return reader.reading


def _objective(loader: str, _job: Job) -> Derived:
    return Derived("pretrain" if loader in ("text", "text_denoising") else "sft", "train_loader.name")


def _set_mpt(reader: Reader) -> None:
    """The sizes of MPT, with MPTConfig's where none is stated."""
    model, name = reader.section("model"), reader.given(TEXT, "model.name")
    if name is None or name.value != "mpt_causal_lm" or reader.has_set("model"):
        return
    hidden, layers = model.value(POSITIVE, "d_model", default=2048), model.value(POSITIVE, "n_layers", default=24)
    found = decoder(
        f"mpt-{layers}x{hidden}", "mpt", hidden=hidden, layers=layers,
        heads=model.value(POSITIVE, "n_heads", default=16), kv_heads=model.value(POSITIVE, "attn_config.kv_n_heads"),
        vocabulary=model.value(POSITIVE, "vocab_size", default=50368),
        intermediate=int(model.value(NUMBER, "expansion_ratio", default=4) * hidden),
        tie_word_embeddings=model.value(FLAG, "tie_word_embeddings", default=True),
    )  # fmt: skip
    reader.set("model", name, found, "the stated dimensions of MPT, with MPTConfig's where none is stated")


def _set_gpus(reader: Reader) -> None:
    """`compute.gpus` stands beside the `parameters` of an mcli run."""
    run = reader.reading.config
    gpus = reader.beside(run, Sections(run.root)).given(POSITIVE, "compute.gpus")
    stated = Stated(gpus.value, gpus.entry, gpus.key) if gpus else None
    set_hardware(reader, reader.project, stated, sharded=reader.keys.raw("fsdp_config") is not None)


def _accumulation(rows: int, job: Job) -> Any:
    gpus, micro = job.hardware.gpus or 1, job.micro_batch_size
    return Written(max(1, rows // (gpus * micro)), f"over {gpus} GPUs") if micro else Unsaid.OTHER


def _no_fsdp(reader: Reader) -> Any:
    sharded = reader.given(SECTION, "fsdp_config") and (reader.job.hardware.gpus or 1) > 1
    return LEAVE if sharded else Derived(None, "no fsdp_config, or one GPU")


def _set_mixed_precision(reader: Reader) -> None:
    """PURE reduces in 16 bits, DEFAULT in float32."""
    word = reader.value(TEXT, "fsdp_config.mixed_precision", default="DEFAULT").upper()
    low = reader.job.precision.autocast
    if word in ("PURE", "DEFAULT") and low:
        reduced, note = low if word == "PURE" else "float32", f"mixed_precision {word}"
        reader.derived(f"{FSDP}mixed_precision.param_dtype", low, note)
        reader.derived(f"{FSDP}mixed_precision.reduce_dtype", reduced, note)


def _checkpointing(_reading: Reading, value: str) -> Keys | None:
    if value not in ("none", "full", "offload"):
        return None
    return {
        "fsdp_config.activation_checkpointing": value != "none",
        "fsdp_config.activation_cpu_offload": value == "offload",
    }


def _sharding(_reading: Reading, value: str) -> Keys | None:
    known = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard")
    return {"fsdp_config.sharding_strategy": value.upper()} if value in known else None


def _method(reading: Reading, value: str) -> Keys | None:
    """PEFT over a model of the hub; MPT from dimensions takes no adapter."""
    if value == "full":
        return {"model.peft_config": None}
    if value != "lora" or not isinstance(reading.job.model, str):
        return None
    if reading.job.method == "lora":
        return {}
    adapter = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 16, "lora_alpha": 32, "target_modules": "all-linear"}
    return {"model.peft_config": adapter}


def _rank(reading: Reading, value: int) -> Keys | None:
    return {"model.peft_config.r": value} if reading.job.adapter is not None else None


def _spelled(reading: Reading, key: str) -> str:
    return f"parameters.{key}" if reading.config.root.find("parameters.model") is not None else key


_AUTO = "auto: Composer halves the batch until it fits"
_MICRO = "device_train_microbatch_size"

_MODEL = within(
    "model",
    Key("model", "pretrained_model_name_or_path", WHOLE_TEXT),
    _set_mpt,
    Fixed("model", Assumed(None, "no key names the model, or somebody fills it in")),
    Key(
        "attention", "use_flash_attention_2", FLAG, to={True: "flash_attention_2"},
        back={"flash_attention_2": True, "sdpa": False}, when=lambda job: isinstance(job.model, str),
    ),
    Key(
        "attention", "attn_config.attn_impl", TEXT, "flash_attention_2",
        lambda word, _: "flash_attention_2" if word == "flash" else "eager",
        {"flash_attention_2": "flash", "eager": "torch"}, when=lambda job: isinstance(job.model, dict),
    ),
    Key("method", "peft_config", SECTION, "full", lambda _, __: "lora", NEVER),
    *only(
        lambda job: job.method == "lora",
        Fixed("adapter.type", Derived("lora", "peft_config", "method")),
        Key("adapter.r", "peft_config.r", POSITIVE),
        Key("adapter.alpha", "peft_config.lora_alpha", NUMBER),
        Key("adapter.targets", "peft_config.target_modules", WORDS),
    ),
)  # fmt: skip

_SHARDING = within(
    "fsdp_config",
    Key("activation_checkpointing", "activation_cpu_offload", FLAG, to={True: "offload"}),
    Key("activation_checkpointing", "activation_checkpointing", FLAG, to={True: "full", False: "none"}),
    Key("reentrant", "activation_checkpointing_reentrant", FLAG),
    Fixed("parallelism.fsdp", _no_fsdp),
    *only(
        may_shard,
        Fixed(f"{FSDP}version", Default(1, "Composer wraps with FSDP 1")),
        Fixed(f"{FSDP}wrap", Default("transformer", "fsdp_wrap_fn: the blocks of the model")),
        Fixed(f"{FSDP}sync_each_batch", Default(True, "Composer's trainer enters no_sync under DDP alone")),
        Key(f"{FSDP}sharding", "sharding_strategy", WORD, "full_shard", back=NEVER),
        _set_mixed_precision,
    ),
)
"""FSDP 1 over the model's blocks."""

TABLE = Table(
    (
        *runs_on(),
        Fixed("kind", Derived("training", "a run of train.py")),
        Key("objective", "train_loader.name", TEXT, Derived("sft", "train_loader.name"), _objective),
        Key("packing", "train_loader.dataset.packing_ratio", ANYTHING, to=lambda _, __: True),
        Fixed(
            "packing",
            lambda reader: Derived(reader.job.objective == "pretrain", "the text loader fills rows", "objective"),
        ),
        *_MODEL,
        *precision(
            "precision", COMPOSER, Default("float32"),
            Default("bfloat16", "precision amp_bf16: default of llm-foundry"), other="amp_bf16",
        ),
        Key("precision.compute", "precision", TEXT, to={"amp_fp8": "float8-te"}),
        _set_gpus,
        size("sequence_length", "max_seq_len"),
        Key("micro_batch_size", _MICRO, TEXT, to={"auto": None}, back=NEVER, note=_AUTO),
        Key(
            "micro_batch_size", _MICRO, POSITIVE, Default(None, _AUTO),
            blank=Assumed(None, "{key} is filled in when the job starts"),
        ),
        Key(
            "gradient_accumulation_steps", "global_train_batch_size", POSITIVE, Default(1, "one device batch"),
            _accumulation,
        ),
        Key("optimizer.name", "optimizer.name", _OPTIMIZER, Assumed("decoupled_adamw", "optimizer.name is not stated"),
            back=NEVER),
        *_SHARDING,
        *USUAL,
    ),
    says={
        "activation_checkpointing": _checkpointing,
        "parallelism.fsdp.sharding": _sharding,
        "method": _method,
        "adapter.r": _rank,
    },
    total="global_train_batch_size",
    spelled=_spelled,
)  # fmt: skip

FORMAT = Format.of_table(
    NAME, "LLM Foundry config", UPSTREAM, read, TABLE, "compute.gpus of an mcli run"
)  # fmt: skip
