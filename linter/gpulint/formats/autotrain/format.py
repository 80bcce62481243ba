"""AutoTrain Advanced: the YAML of `autotrain --config` and the flags of `autotrain llm`, around the Trainer and TRL.

Facts from autotrain-advanced 0.8.37.dev0 (`parser.py`, `trainers/*/params.py`, `trainers/clm/`, `commands.py`,
`requirements.txt`), read statically. What it hands to the Trainer is read as the Trainer reads it
(`training_arguments.py`, `trl.py`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..core.backends.trainer import BATCH, model, optimizer
from ..core.bindings.kinds import FLAG, POSITIVE, TEXT, WORD
from ..core.bindings.reader import by_program
from ..core.bindings.rows import Default, Derived, Fixed, Key, Table, renamed, within
from ..core.format import Format, Problem, Reading
from ..core.key_changes import ZERO
from ..core.keys import key_problems, load
from ..core.model_facts import find_model
from ..core.references import plain_document
from ..core.world_size import Stated, set_hardware
from ..deepspeed.config import apply
from ..hf_trainer.peft_arguments import ADAPTER, METHOD, WEIGHTS, set_quantization
from ..hf_trainer.released_profile import released
from ..hf_trainer.sharding import auto_values
from ..hf_trainer.trainer_profiles import flavour
from ..hf_trainer.trainer_reader import TrainerReader, run_of, trainer_rows
from ..hf_trainer.training_arguments import set_evaluation
from ..hf_trainer.trl import LENGTHS, RL
from ..hf_trainer.unsloth import set_unsloth
from .parameters import LANGUAGE, NAME, Parameters, task_of, translated, usual

if TYPE_CHECKING:
    from ...job.job import Job
    from ...source.document import Document
    from ..core.arguments import Given
    from ..core.bindings.reader import Reader
    from ..core.format import Project
    from ..core.key_changes import Keys

UPSTREAM = "AutoTrain 0.8.37.dev0"
VERSIONS = {"transformers": "4.48.0", "trl": "0.13.0", "peft": "0.14.0", "accelerate": "1.2.1"}
"""Those of its requirements.txt."""

_SPACES = {
    "t4-small": ("t4", 1), "t4-medium": ("t4", 1), "a10g-small": ("a10g", 1), "a10g-large": ("a10g", 1),
    "a10g-largex2": ("a10g", 2), "a10g-largex4": ("a10g", 4), "a100-large": ("a100-80gb", 1), "l4x1": ("l4", 1),
    "l4x4": ("l4", 4), "l40sx1": ("l40s", 1), "l40sx4": ("l40s", 4), "l40sx8": ("l40s", 8),
}  # fmt: skip
"""Hardware of Hugging Face Spaces (huggingface.co/docs/hub/spaces-gpus) -> GPU and count."""

_BACKENDS = {
    **{f"spaces-{name}": row for name, row in _SPACES.items()},
    **{f"nvcf-h100x{count}": ("h100-80gb", count) for count in (1, 2, 4, 8)},
    **{f"dgx-{count}a100": ("a100-80gb", count) for count in (2, 4, 8)},
    "dgx-a100": ("a100-80gb", 1), "nvcf-l40sx1": ("l40s", 1), "ep-aws-useast1-s": ("t4", 1),
    "ep-aws-useast1-m": ("a10g", 1), "ep-aws-useast1-l": ("t4", 4), "ep-aws-useast1-xl": ("a100-80gb", 1),
    "ep-aws-useast1-2xl": ("a100-80gb", 2), "ep-aws-useast1-4xl": ("a100-80gb", 4),
    "ep-aws-useast1-8xl": ("a100-80gb", 8),
}  # fmt: skip
"""`backend` (backends/base.py AVAILABLE_HARDWARE) -> GPU and count; `local` is whatever the machine has."""


def read(document: Document, project: Project) -> Reading:
    """The Job of a task that trains a language model. Raises NoJobError for the others."""
    keys = Parameters(document)
    task, parameters, objective = task_of(document, keys)
    reader = TrainerReader(document, project, NAME, UPSTREAM, keys=keys)
    given = translated(keys, seq2seq=objective == "seq2seq")
    versions = {**VERSIONS, **{name: stated for name, stated in project.versions.items() if stated}}
    trl_defaults = released(flavour("trl")._replace(versions={}), versions).defaults
    reader.starts(trl_defaults | usual(parameters, given), given, launched=False)
    reader.set("objective", task, objective)
    if parameters == "TextRegressionParams" and task:
        reader.set("labels", task, 1)
    reader.bind(TABLE.rows)
    reader.reading.problems[:0] = _key_problems(document, parameters)
    return reader.reading


def _set_method(reader: Reader) -> None:
    run_of(reader).bind(METHOD)
    if reader.job.method == "full" and "use_peft" not in run_of(reader).keys:
        reader.default("method", "full", "peft false")


UNSLOTH = "2025.1.8"
"""A release of the month of AutoTrain's last, which pins none."""

_UNSLOTH = frozenset({"llama", "mistral", "gemma", "qwen2"})
"""Model types that `get_model` gives to Unsloth."""


def _set_unsloth(reader: Reader) -> None:
    """`unsloth` loads in the dtype of `mixed_precision`, and with an adapter wraps the layers."""
    given, job = reader.on("params.unsloth"), reader.job
    model = find_model(job.model, reader.document.path, reader.project.root) if given else None
    if not given or model is None or model.config.get("model_type") not in _UNSLOTH:
        return
    if job.objective in ("sft", "pretrain"):
        reader.set("weights.dtype", given, job.precision.autocast, "Unsloth's load")
        if job.method == "lora":
            set_unsloth(run_of(reader), given, UNSLOTH, "offload")


def _packs(reader: Reader) -> Derived:
    packs = reader.job.objective in ("sft", "pretrain") and reader.defaults["parameters"] == LANGUAGE
    return Derived(packs, "rows are filled to block_size" if packs else "a row a sample", "objective")


def _set_rl(reader: Reader) -> None:
    """The reference of DPO: a copy of the model that TRL makes, or `model_ref`; with PEFT none."""
    run, job = run_of(reader), reader.job
    run.bind(RL)
    named = reader.given(TEXT, "params.model_ref")
    if job.objective == "dpo" and named and job.method == "full":
        reader.set("rl.reference_model", named, True, "a second model")
    run.bind(LENGTHS)


def _set_evaluation(reader: Reader) -> None:
    """Rows of evaluation: as many as in training, or twice as many; none without a `valid_split`."""
    flags, field = reader.document.syntax == "flags", "evaluation.micro_batch_size"
    split = reader.keys.raw("params.valid_split" if flags else "data.valid_split")
    set_evaluation(run_of(reader))
    if split is None or split.value in (None, "", "null"):
        reader.default(field, None, "no valid_split")
        return
    twice = reader.defaults["parameters"] != LANGUAGE
    rows = (reader.job.micro_batch_size or 1) * (2 if twice else 1)
    reader.set(field, split, rows, "batch_size" + (" x 2" if twice else ""))
    reader.derived("evaluation.keeps_logits", False, "only the loss is kept")


def _set_sharding(reader: Reader) -> None:
    """The GPUs of `backend`; `distributed_backend: deepspeed` is ZeRO-3 where there are several."""
    backend, way = reader.given(TEXT, "backend"), reader.given(TEXT, "params.distributed_backend")
    machine = _BACKENDS.get(backend.value) if backend else None
    stated = Stated(machine[1], backend.entry, "backend", backend.value) if machine and backend else None
    way = way if way and way.value == "deepspeed" else None
    set_hardware(reader, reader.project, stated, sharded=way is not None)
    if machine and reader.project.gpu is None:
        reader.set("hardware.gpu", backend, machine[0])
    for name, value in (("tensor", 1), ("pipeline", 1), ("context", 1), ("fsdp", None), ("zero", None)):
        reader.default(f"parallelism.{name}", value)
    gpus, job = reader.job.hardware.gpus or 1, reader.job
    packed = job.weights.quantization is not None and job.precision.autocast == "bfloat16"
    by_itself = reader.defaults["parameters"] in ("Seq2SeqParams", "VLMTrainingParams") and gpus > 2 and not packed
    if (way and gpus > 1) or by_itself:
        _set_zero(reader, way if gpus > 1 else None)


def _set_zero(reader: Reader, way: Given | None) -> None:
    """`accelerate launch --use_deepspeed --zero_stage 3` without offload (`commands.py`)."""
    inline = plain_document({"zero_optimization": {"stage": 3}}, "deepspeed")
    apply(reader, inline, auto_values(run_of(reader))._replace(client="accelerate"))
    reader.set(f"{ZERO}stage", way, 3, "launched with ZeRO-3" if way else "launched with ZeRO-3 on three GPUs and more")


_COMMAND = ("train", "deploy", "inference", "backend", "train-batch-size", "disable-gc")
"""Flags of `autotrain llm` that are no parameters."""


def _key_problems(document: Document, parameters: str) -> list[Problem]:
    """Keys of the sections, and parameters that the task lacks; argparse refuses what pydantic only logs."""
    if document.syntax != "flags":
        section = document.root.get("params")
        found = key_problems(document, NAME)
        if section is not None and section.is_mapping:
            found += key_problems(document, NAME, node=section, definition=parameters, prefix="params")
        return found
    known = load(NAME)["$defs"][parameters]["properties"]
    spelled = [*_COMMAND, *(key.replace("_", "-") for key in known)]
    problems = key_problems(document, NAME, definition=parameters, known=spelled)
    return [item._replace(values={**item.values, "treatment": "refused"}) for item in problems]


def _is_language(job: Job) -> bool:
    return job.objective in ("sft", "pretrain", "dpo", "orpo", "reward")


def _checkpointing(reading: Reading, value: str) -> Keys | None:
    if value not in ("full", "none") or not _is_language(reading.job):
        return None
    return {"params.disable_gradient_checkpointing": True if value == "none" else None}


def _method(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """`peft` with a base in 4 or 8 bits, or in its own dtype."""
    job = reading.job
    if "weights.quantization.method" in changes:
        words = {"bnb-nf4": "int4", "bnb-int8": "int8", None: "none"}
        word = words.get(changes["weights.quantization.method"])
    else:
        word = "none" if job.weights.quantization is None else "int4"
    method = changes.get("method", "lora")
    fixed = "method" in changes and job.objective in ("classification", "token_classification")
    if word is None or method not in ("full", "lora") or fixed:
        return None
    if method == "full" and "weights.quantization.method" not in changes:
        return {"params.peft": False}
    return {"params.peft": True, "params.quantization": word}


def _zero(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """`distributed_backend: deepspeed` is ZeRO-3 without offload, and nothing else can be said."""
    offloads = any(value not in (None, "none") for path, value in changes.items() if path != f"{ZERO}stage")
    said = changes.get(f"{ZERO}stage") == 3 and not offloads and _is_language(reading.job)
    return {"params.distributed_backend": "deepspeed"} if said else None


def _spelled(reading: Reading, key: str) -> str:
    """Parameters stand in `params` of a file, and are the flags of a command."""
    if reading.config.syntax != "flags":
        return key
    name = key.removeprefix("params.")
    return name if reading.config.root.entry(name) is not None else name.replace("_", "-")


_SIZES = {
    "per_device_train_batch_size": ("params.batch_size",),
    "gradient_accumulation_steps": ("params.gradient_accumulation",),
}

TABLE = Table(
    (
        Fixed("kind", Derived("training", "AutoTrain trains")),
        lambda reader: reader.versions(VERSIONS, reader.project.versions, "requirements.txt of AutoTrain"),
        model("base_model", "params.model"),
        *(
            replace(row, default=by_program(row.names[0].removeprefix("params.")))
            for row in renamed(_SIZES, *BATCH)
            if isinstance(row, Key)
        ),
        *within(
            "params",
            Key(
                "precision.autocast", "mixed_precision", WORD, None, {"bf16": "bfloat16", "fp16": "float16"},
                {"bfloat16": "bf16", "float16": "fp16", None: "none"},
            ),
            Fixed("precision.master_weights", False),
            Fixed("precision.gradients", Derived(None, "gradients have the dtype of their weight")),
            trainer_rows(*WEIGHTS),
            _set_method,
            trainer_rows(set_quantization),
            trainer_rows(*ADAPTER),
            *optimizer("optimizer", "adamw_torch"),
            Key(
                "activation_checkpointing", "disable_gradient_checkpointing", FLAG, by_program("checkpointing"),
                {True: "none", False: "full"},
            ),
            Fixed("reentrant", by_program("reentrant")),
            Key(
                "attention", "use_flash_attention_2", FLAG, by_program("attention"),
                {True: "flash_attention_2", False: "sdpa"}, {"flash_attention_2": True}, when=_is_language,
            ),
            Fixed("attention", by_program("attention")),
            Fixed("compile", False),
            Fixed("loss.kernel", "torch"),
            Fixed("liger_kernels", False),
            _set_unsloth,
            Fixed("packing", _packs),
            Fixed("padded", Default(False, "rows are padded to the longest of a batch")),
            _set_rl,
            Key("adapter.r", "lora_r", POSITIVE, when=lambda job: job.adapter is not None),
            Key("sequence_length", "block_size", POSITIVE, when=_is_language),
            Key("sequence_length", "max_seq_length", POSITIVE, when=lambda job: not _is_language(job)),
        ),
        _set_evaluation,
        _set_sharding,
    ),
    says={"activation_checkpointing": _checkpointing},
    together={("method", "weights.quantization.method"): _method},
    zero=_zero,
    spelled=_spelled,
)  # fmt: skip

FORMAT = Format.of_table(NAME, "AutoTrain config", UPSTREAM, read, TABLE, "`backend`")
