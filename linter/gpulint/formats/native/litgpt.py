"""LitGPT: fine-tuning and pretraining YAML, and the flags of `litgpt finetune_lora` and its kin.

Facts from litgpt 0.5.13 at 26857050 (litgpt/finetune/*.py, litgpt/pretrain.py, litgpt/args.py), read statically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...models.llama_adapter import FIRST_VERSION, SECOND_VERSION
from ...models.llama_adapter import TYPES as ADAPTERS
from ..core.backends.fsdp import FSDP
from ..core.backends.precision import precision
from ..core.backends.training_loop import USUAL, runs_on
from ..core.bindings.kinds import FLAG, NUMBER, POSITIVE, TEXT, WHOLE_TEXT, Unsaid
from ..core.bindings.reader import Reader, by_schema
from ..core.bindings.rows import Assumed, Default, Derived, Fixed, Key, Table, Written, only
from ..core.bindings.spelling import CLASSES, FABRIC, optimizer
from ..core.coercion import as_integer
from ..core.format import Format, NoJobError, Reading
from ..core.keys import default, key_problems
from ..core.world_size import Stated, set_hardware
from .litgpt_generate import GENERATES, command_of
from .litgpt_generate import TABLE as GENERATION
from .litgpt_model import lora_targets, quantization_of, set_checkpoint

if TYPE_CHECKING:
    from ...job.job import Job
    from ...source.document import Document
    from ..core.bindings.rows import Row
    from ..core.format import Project
    from ..core.key_changes import Keys

NAME = "litgpt"
UPSTREAM = "litgpt 0.5.13"

_LORA = ("query", "key", "value", "projection", "mlp", "head")
_ARGUMENTS = frozenset({"lr", "weight_decay", "betas", "eps"})
"""What every Adam takes."""

_TRAINS = {
    "finetune": "lora", "finetune_lora": "lora", "finetune_full": "full", "pretrain": "pretrain",
    "finetune_adapter": FIRST_VERSION, "finetune_adapter_v2": SECOND_VERSION,
}  # fmt: skip
"""The commands that train, by what."""


def read(document: Document, project: Project) -> Reading:
    """The Job of a run. Raises NoJobError for commands that neither train nor answer a prompt."""
    reader = Reader(document, project, NAME, UPSTREAM)
    reader.bind((GENERATION if command_of(reader) in GENERATES else TABLE).rows)
    reader.reading.problems[:0] = key_problems(document, NAME, known=("command", "config"))
    return reader.reading


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


def _set_script(reader: Reader) -> None:
    script = _script(reader.document)
    reader.derived("objective", "pretrain" if script == "pretrain" else "sft", f"litgpt {script}")
    if script in ADAPTERS:
        reader.derived("method", "adapter", f"{script} of the command")
        reader.derived("adapter.type", script, "the command")
    elif script == "lora":
        reader.derived("method", "lora", "the LoRA script")
        reader.derived("adapter.type", "lora", "the LoRA script")
    else:
        reader.derived("method", "full", f"litgpt {script}")


def _pretrains(job: Job) -> bool:
    return job.objective == "pretrain"


def _has_lora(job: Job) -> bool:
    return job.method == "lora"


def _set_model(reader: Reader) -> None:
    set_checkpoint(reader, *(("model_name", "checkpoint_dir") if _pretrains(reader.job) else ("checkpoint_dir",)))


def _targets(reader: Reader) -> Derived:
    model = reader.job.model
    chosen = [name for name in _LORA if reader.value(FLAG, f"lora_{name}", default=default(NAME, f"lora_{name}"))]
    kind = model.get("model_type") if isinstance(model, dict) else None
    return Derived(lora_targets(chosen, kind), "lora_query, lora_key ... of LitGPT's layers")


def _set_gpus(reader: Reader) -> None:
    """devices x num_nodes; fine-tuning runs on one device by default."""
    devices, nodes = reader.given(POSITIVE, "devices"), reader.given(POSITIVE, "num_nodes")
    count, project, whole = nodes.value if nodes else 1, reader.project, _pretrains(reader.job)
    stated = Stated(devices.value * count, devices.entry, devices.key, "devices x num_nodes") if devices else None
    if reader.keys.raw("devices") is None and not whole and project.gpus is None:
        reader.default("hardware.gpus", count, f"devices 1: default of {UPSTREAM}")
    else:
        set_hardware(reader, project, stated, sharded=whole and stated is None)
    if nodes and project.nodes is None:
        reader.set("hardware.nodes", nodes)


def _is_alone(job: Job) -> bool:
    return (job.hardware.gpus or 1) < 2


def _check_quantization(reader: Reader) -> None:
    job, given = reader.job, reader.given(TEXT, "quantize")
    if given is None or job.weights.quantization is None:
        return
    if job.precision.autocast:
        stated = reader.value(TEXT, "precision", default="unset, which means bf16-mixed")
        reader.contradiction(given, f"precision is {stated}", "LitGPT stops: no quantisation with mixed precision")
    if not _is_alone(job):
        gpus = f"there are {job.hardware.gpus} devices"
        reader.contradiction(given, gpus, "LitGPT stops: quantisation needs devices: 1")


def _wrapped(version: int, note: str) -> tuple[Row, ...]:
    return (
        Fixed(f"{FSDP}version", Default(version, note)),
        Fixed(f"{FSDP}wrap", Default("transformer", note)),
        Fixed(f"{FSDP}wrap_adapters", Default(False, note)),
    )


def _accumulation(rows: int, job: Job) -> Written:
    steps = max(1, rows // (job.hardware.gpus or 1) // (job.micro_batch_size or 1))
    return Written(steps, f"global batch {rows} over the devices and micro batches")


def _length(reader: Reader) -> Derived | Assumed:
    """The block size in pretraining; else the longest of the data."""
    job = reader.job
    block = as_integer(job.model.get("max_position_embeddings")) if isinstance(job.model, dict) else None
    if _pretrains(job) and block:
        return Derived(block, "the block size of the model", "model")
    return Assumed(None, "train.max_seq_length bounds the rows, and is not stated")


def _fused(name: str, job: Job) -> str:
    return "adamw_torch_fused" if name == "adamw_torch" and _pretrains(job) else name


def _packing(reading: Reading, value: str) -> Keys | None:
    """Only the scripts of adapters have `quantize`, and only on one device."""
    word = {"bnb-nf4": "bnb.nf4", "bnb-fp4": "bnb.fp4", "bnb-int8": "bnb.int8-training"}.get(value)
    alone = reading.job.adapter is not None and _is_alone(reading.job)
    return {"quantize": word, "precision": "bf16-true"} if word and alone else None


def _optimizer(reading: Reading, value: str) -> Keys | None:
    """The class by its path, alone or as `class_path` beside arguments that it takes, too."""
    given, path = reading.config.root.get("optimizer"), CLASSES.get(value)
    if path is None or given is None or not given.is_mapping:
        return {"optimizer": path} if path else None
    arguments = given.get("init_args")
    fits = arguments is None or _ARGUMENTS.issuperset(map(str, arguments.keys()))
    return {"optimizer.class_path": path} if fits else None


_FABRIC = "FSDPStrategy of Lightning Fabric"

_SHARDING = (
    Fixed("activation_checkpointing", Default("none", "one device checkpoints nothing"), when=_is_alone),
    Fixed("activation_checkpointing", Default("none", "pretraining checkpoints nothing"), when=_pretrains),
    Fixed("activation_checkpointing", Default("full", "several devices: every block is checkpointed")),
    *only(
        lambda job: not _is_alone(job),
        *only(_has_lora, *_wrapped(2, "litgpt/finetune/lora.py parallelize_fn")),
        *only(
            lambda job: not _has_lora(job),
            *_wrapped(1, _FABRIC),
            Fixed(f"{FSDP}sharding", Default("hybrid_shard", _FABRIC), when=_pretrains),
            Fixed(
                f"{FSDP}mixed_precision.reduce_dtype", Default("bfloat16", "FSDPPrecision bf16-mixed of Fabric"),
                when=lambda job: job.precision.autocast is not None,
            ),
        ),
    ),
)  # fmt: skip
"""More than one device shards: LoRA with FSDP2, full and pretraining with FSDP 1, all by block.

Fine-tuning checkpoints every block then.
"""

TABLE = Table(
    (
        *runs_on("litgpt"),
        Fixed("kind", Derived("training", "a training run")),
        _set_script,
        *precision(
            "precision", FABRIC, Default("float32", "bf16-mixed: what get_default_supported_precision says"),
            Default("bfloat16", "bf16-mixed: default of litgpt"),
        ),
        _set_model,
        *only(
            _has_lora,
            Key("adapter.r", "lora_r", POSITIVE, by_schema(NAME, "lora_r")),
            Key("adapter.alpha", "lora_alpha", NUMBER, by_schema(NAME, "lora_alpha")),
            Key("adapter.dropout", "lora_dropout", NUMBER, by_schema(NAME, "lora_dropout")),
            Fixed("adapter.targets", _targets),
        ),
        *only(
            lambda job: job.adapter is not None,
            Fixed(
                "adapter.dtype",
                lambda reader: Derived(reader.job.weights.dtype, "adapters have the dtype of the weights"),
            ),
            Key(
                "weights.quantization", "quantize", WHOLE_TEXT,
                to=lambda word, _: quantization_of(word) or Unsaid.OTHER,
            ),
        ),
        _set_gpus,
        _check_quantization,
        *_SHARDING,
        Key(
            "micro_batch_size", "train.micro_batch_size", POSITIVE, lambda reader: 4 if _pretrains(reader.job) else 1,
        ),
        Key(
            "gradient_accumulation_steps", "train.global_batch_size", POSITIVE,
            lambda reader: Default(*_accumulation(512 if _pretrains(reader.job) else 16, reader.job)), _accumulation,
        ),
        Key("sequence_length", "train.max_seq_length", POSITIVE, _length),
        *only(
            _pretrains,
            Fixed("packing", Derived(True, "pretraining reads rows of the block size", "objective")),
            Fixed("compile", Default(True, "pretrain.py compiles the model")),
        ),
        Fixed(
            "longest_batch_first", Default(True, "the first step takes the longest sample"),
            when=lambda job: not _pretrains(job) and job.sequence_length is None,
        ),
        Fixed(
            "optimizer.name",
            Derived(
                "paged_adamw_32bit", "instantiate_bnb_optimizer takes PagedAdamW for any AdamW", "weights.quantization"
            ),
            when=lambda job: job.weights.quantization is not None,
        ),
        Key(
            "optimizer.name", ("optimizer", "optimizer.class_path"), optimizer(any_other=True),
            lambda reader: _fused("adamw_torch", reader.job), _fused,
        ),
        *USUAL,
    ),
    says={"weights.quantization.method": _packing, "optimizer.name": _optimizer},
    total="train.global_batch_size",
)  # fmt: skip

FORMAT = Format.of_table(NAME, "LitGPT config", UPSTREAM, read, TABLE, "devices x num_nodes")
