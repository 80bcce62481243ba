"""LLaMA-Factory configs: training, inference, evaluation and export, YAML or JSON.

Facts from llamafactory 0.9.5 (`hparams/*.py`, `model/loader.py`, `model/adapter.py`, `model/patcher.py`,
`model/model_utils/*.py`), read statically. It runs on transformers <= 5.6.0 and peft <= 0.18.1 (its METADATA).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...upstream import llamafactory, transformers
from ...upstream.behaviour import default_of
from ..accelerate.elsewhere import sharded_elsewhere
from ..core.backends.deepspeed import chooses_file, inline_deepspeed, zero_keys
from ..core.backends.trainer import BATCH, model
from ..core.bindings.kinds import FLAG, POSITIVE, TEXT
from ..core.bindings.rows import NEVER, Default, Derived, Fixed, Key, Table, Written, only
from ..core.format import Format, Problem, Reading
from ..core.key_changes import OFFLOADS, ZERO, trainer_offload
from ..core.keys import default, key_problems
from ..core.references import is_here
from ..hf_trainer import image_inputs
from ..hf_trainer.placeholder_keys import settle
from ..hf_trainer.sharding import set_sharding
from ..hf_trainer.trainer_reader import TrainerReader, trainer_rows
from ..hf_trainer.training_arguments import COMPILE, OPTIMIZER, PRECISION, launch_of_run, set_evaluation, smooths
from ..hf_trainer.unsloth import set_unsloth
from .inference import FLASH, INFERENCE, UPSTREAM, infers
from .megatron import is_megatron, set_megatron
from .method import METHOD, RL, method_keys, set_low_rank

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...job.job import Job
    from ...source.document import Document
    from ..core.arguments import Arguments
    from ..core.bindings.reader import Reader
    from ..core.format import Project
    from ..core.key_changes import Keys

NAME = "llamafactory"
VERSIONS = {"llamafactory": "0.9.5", "transformers": "5.6.0", "peft": "0.18.1"}

UNSLOTH = "2026.8.19"
"""LLaMA-Factory takes whichever is installed."""

DEFAULTS: dict[str, Any] = {"bf16": False, "optim": "adamw_torch_fused", "attention": "sdpa", "cutoff_len": 2048}
"""Defaults of `hparams` that `TrainingArguments` readers ask for by name."""

FORMER_PROGRAM = "train_bash.py"
FORMER_VERSIONS = {"llamafactory": "0.6.3", "transformers": "4.39.3", "peft": "0.10.0"}
"""Up to 0.7.0 runs were started by `src/train_bash.py`: the last release before sdpa came back, and what it allowed."""

_STAGES = {"pt": "pretrain", "sft": "sft", "rm": "reward", "ppo": "ppo", "dpo": "dpo", "kto": "kto"}


def read(document: Document, project: Project) -> Reading:
    """The Job of a run: training when it trains, else what generates, evaluates or exports."""
    reader = TrainerReader(document, project, NAME, UPSTREAM)
    former = FORMER_PROGRAM in document.text[: document.root.span.start]
    versions = FORMER_VERSIONS if former else VERSIONS
    release = project.versions.get(transformers.NAME, versions[transformers.NAME])
    optimizer = default_of(transformers.DEFAULTS, release, "optim", DEFAULTS["optim"])
    reader.starts({**DEFAULTS, "optim": optimizer}, launched=_trains(reader.keys))
    note = f"src/{FORMER_PROGRAM}: up to 0.7.0" if former else f"what {UPSTREAM} allows"
    reader.versions(versions, project.versions, note)
    reader.bind(TABLE.rows)
    reader.reading.problems[:0] = _key_problems(document)
    return reader.reading


def _key_problems(document: Document) -> list[Problem]:
    """Unknown, mistyped and removed keys; beside Megatron's arguments only what looks like a misspelt key."""
    problems = key_problems(document, NAME)
    if not is_megatron(document.root):
        return problems
    return [item for item in problems if item.kind != "unknown-key" or item.values["suggestion"]]


def _trains(arguments: Arguments) -> bool:
    train = arguments.flag("do_train")
    if train is not None:
        return bool(train.value)
    others = ("infer_backend", "export_dir", "task", "do_predict", "do_eval")
    return not any(key in arguments for key in others) and bool(
        arguments.raw("per_device_train_batch_size", "learning_rate", "num_train_epochs", "output_dir")
    )


def _set_kind(reader: Reader) -> None:
    trains = _trains(reader.keys)
    note = "a training run" if trains else "nothing is trained"
    reader.derived("kind", "training" if trains else "inference", note)
    if reader.on("use_kt"):
        reader.assumed("model", None, "KTransformers keeps the experts in main memory, which is not estimated")


def _is_trained(job: Job) -> bool:
    return not infers(job)


def _set_objective(reader: Reader) -> None:
    stage, loss = reader.given(TEXT, "stage"), reader.given(TEXT, "pref_loss")
    if stage and stage.value == "dpo" and loss and loss.value in ("orpo", "simpo"):
        reader.set("objective", loss)
    elif stage and stage.value in _STAGES:
        reader.set("objective", stage, _STAGES[stage.value])
    else:
        reader.default("objective", "sft")


def _set_float8(reader: Reader) -> None:
    """`fp8` with torchao's linear layers, or Transformer Engine's where `fp8_backend` says so."""
    given = reader.on("fp8")
    engine = reader.value(TEXT, "fp8_backend", default="").lower() in ("te", "transformer_engine")
    reader.set("precision.compute", given, None if given is None else "float8-te" if engine else "float8")


def _set_checkpointing(reader: Reader) -> None:
    """On unless `disable_gradient_checkpointing`; HF's own key cannot turn it off (`checkpointing.py`)."""
    field, off = "activation_checkpointing", reader.given(FLAG, "disable_gradient_checkpointing")
    own = reader.on("gradient_checkpointing", "activation_checkpointing")
    offload = reader.on("use_unsloth_gc")
    if off and off.value and own:
        reader.set(field, own, "full")
    elif off:
        reader.set(field, off, "none" if off.value else "full")
    else:
        reader.set(field, offload, "offload" if offload else "full")


def _usual(name: str, key: str, newest: Any) -> Callable[[Reader], Default]:
    """The default of the release that is stated, else of the program's."""

    def source(reader: Reader) -> Default:
        version = reader.job.versions[NAME]
        start = f"{key}: " if key else ""
        return Default(
            default_of(llamafactory.DEFAULTS, version, name, newest), f"{start}default of llamafactory {version}"
        )

    return source


def _set_smoothing(reader: Reader) -> None:
    smooths(reader, reader.job.objective)


def _compares(job: Job) -> bool:
    return job.objective in ("dpo", "kto", "orpo", "simpo")


def _is_plain(job: Job) -> bool:
    return job.objective in ("sft", "pretrain")


_LIGER = ("enable_liger_kernel", "use_liger_kernel")

_KERNELS = (
    Key("attention", "flash_attn", FLASH, other=Written("sdpa", "auto: what the model prefers")),
    Key(
        "attention", "flash_attn", FLAG, _usual("attention", "flash_attn", DEFAULTS["attention"]),
        {True: "flash_attention_2", False: "eager"}, NEVER, note="a switch up to 0.6.3",
    ),
    trainer_rows(*COMPILE),
    Key("liger_kernels", _LIGER, FLAG, default=False, back=NEVER),
    _set_smoothing,
    Key("loss.kernel", _LIGER, FLAG, to={True: "liger"}, when=_is_plain),
    Fixed("loss.kernel", "torch"),
    Fixed(
        "loss.log_softmax",
        Derived(
            "float32", "the log-softmax of all logits in float32 (train/trainer_utils.py `get_batch_logps`)",
            "objective",
        ),
        when=_compares,
    ),
    Fixed(
        "loss.logits_unused",
        Derived(True, "TRL's value head stands beside lm_head, whose logits are made all the same", "objective"),
        when=lambda job: job.objective == "reward",
    ),
)  # fmt: skip
"""Liger fuses the head and the loss only where nobody asks for logits: stages pt and sft (`liger_kernel.py`)."""

_LENGTHS = (
    Key("packing", "neat_packing", FLAG, to={True: True}, back=NEVER),
    Key(
        "packing", "packing", FLAG,
        lambda reader: Derived(True, f"stage pt packs: default of {UPSTREAM}", "objective")
        if reader.job.objective == "pretrain" else False,
    ),
    Key("sequence_length", "cutoff_len", POSITIVE, _usual("cutoff_len", "", DEFAULTS["cutoff_len"])),
    Fixed("padded", Default(False, "rows are padded to the longest of a batch")),
)  # fmt: skip
"""`cutoff_len`, one less when packed, and packing, which is on by itself only for stage pt (`data_args.py`)."""


def _set_evaluation(reader: Reader) -> None:
    accuracy = reader.on("compute_accuracy") is not None and reader.on("predict_with_generate") is None
    set_evaluation(reader, metrics=accuracy, trainers=())


def _set_sharding(reader: Reader) -> None:
    set_sharding(reader, launch_of_run(reader))
    if given := reader.on("use_unsloth"):
        set_unsloth(reader, given, UNSLOTH, "offload")


_DEEPSPEED_FILES = {
    (0, False): "examples/deepspeed/ds_z0_config.json",
    (2, False): "examples/deepspeed/ds_z2_config.json",
    (2, True): "examples/deepspeed/ds_z2_offload_config.json",
    (3, False): "examples/deepspeed/ds_z3_config.json",
    (3, True): "examples/deepspeed/ds_z3_offload_config.json",
}
"""(stage, offload) -> the file LLaMA-Factory ships; stage 3 with offload offloads optimizer and parameters."""


def _zero(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """A shipped DeepSpeed file; keys of the mapping where the file holds one."""
    root, job = reading.config.root, reading.job
    entry = root.entry("deepspeed")
    if is_megatron(root):
        return None
    if entry is not None and entry.value.is_mapping:
        return zero_keys(root, "deepspeed", changes)
    after = job.with_changes(changes)
    devices = {after.get(path) for path in OFFLOADS}
    stage = after.get(f"{ZERO}stage")
    file: Any = _DEEPSPEED_FILES.get((stage, "cpu" in devices))
    if file is None or "nvme" in devices or job.method == "freeze" or not chooses_file(changes):
        return None
    if not is_here(reading.config, file, "deepspeed"):
        offloads = dict.fromkeys(("offload_optimizer", "offload_param") if "cpu" in devices else (), "cpu")
        if stage == 2:
            offloads.pop("offload_param", None)
        file = inline_deepspeed(stage, offloads)
    pure = {"pure_bf16": None, "bf16": True} if stage == 3 and root.get("pure_bf16") else {}
    return {"deepspeed": file, "fsdp": None, "fsdp_config": None, **pure}


def _checkpointing(reading: Reading, value: str) -> Keys | None:
    if is_megatron(reading.config.root):
        return {"recompute_granularity": value if value == "full" else None} if value != "offload" else None
    if value == "none":
        return {"disable_gradient_checkpointing": True, "gradient_checkpointing": None, "use_unsloth_gc": None}
    offload = {"full": None, "offload": True}
    return {"disable_gradient_checkpointing": None, "use_unsloth_gc": offload[value]} if value in offload else None


def _dtype(reading: Reading, value: str) -> Keys | None:
    """Trainable weights stay 16-bit only with `pure_bf16`, which ZeRO-3 refuses."""
    job = reading.job
    zero3 = job.parallelism.zero is not None and job.parallelism.zero.stage == 3
    if value != "bfloat16" or zero3 or job.method != "full" or is_megatron(reading.config.root):
        return None
    return {"pure_bf16": True, "bf16": None, "fp16": None}


def _autocast(reading: Reading, value: str | None) -> Keys | None:
    if reading.job.precision.master_weights or reading.config.root.get("pure_bf16") is not None:
        return None
    return {"fp16": True, "bf16": None} if value == "float16" else {"bf16": True if value else None, "fp16": None}


def _optimizer(_reading: Reading, value: str) -> Keys:
    """`optim`, in whose place no switch puts another."""
    switches = ("use_galore", "use_apollo", "use_badam", "use_adam_mini", "use_muon")
    return {"optim": value, **dict.fromkeys(switches)}


def _sharding(reading: Reading, value: str) -> Keys | None:
    """FSDP as TrainingArguments take it; quantised weights go through accelerate's FSDP only."""
    whole = value == "full_shard" and reading.job.weights.quantization is None
    return (
        {"fsdp": "full_shard auto_wrap", "deepspeed": None} if whole and not is_megatron(reading.config.root) else None
    )


def _offload(reading: Reading, value: bool) -> Keys | None:
    return trainer_offload(reading.config.root, reading.job.versions.get("transformers", ""), value)


def _evaluation(reading: Reading, value: int) -> Keys | None:
    return {"per_device_eval_batch_size": value} if reading.job.evaluation.micro_batch_size else None


TABLE = Table(
    (
        _set_kind,
        model("model_name_or_path"),
        *INFERENCE,
        *only(
            _is_trained,
            _set_objective,
            *BATCH,
            trainer_rows(*PRECISION),
            _set_float8,
            *METHOD,
            trainer_rows(*OPTIMIZER),
            set_low_rank,
            _set_checkpointing,
            Key("reentrant", "use_reentrant_gc", FLAG, default=True, back=NEVER),
            *_KERNELS,
            *_LENGTHS,
            lambda reader: image_inputs.at_most(reader, "image_max_pixels", default(NAME, "image_max_pixels")),
            *RL,
            _set_evaluation,
            _set_sharding,
            set_megatron,
            lambda reader: settle(reader, reader.keys),
        ),
    ),
    says={
        "activation_checkpointing": _checkpointing,
        "weights.dtype": _dtype,
        "precision.autocast": _autocast,
        "optimizer.name": _optimizer,
        "evaluation.micro_batch_size": _evaluation,
        "parallelism.fsdp.sharding": _sharding,
        "parallelism.fsdp.offload": _offload,
    },
    together={("method", "weights.quantization.method", "adapter.r"): method_keys},
    zero=_zero,
    refuses=lambda reading, changes: infers(reading.job) and any(not path.startswith("inference.") for path in changes),
    elsewhere=sharded_elsewhere(),
)

FORMAT = Format.of_table(NAME, "LLaMA-Factory config", UPSTREAM, read, TABLE)
