"""AutoTrain Advanced: the YAML of `autotrain --config` and the flags of `autotrain llm`, around the Trainer and TRL.

Facts from autotrain-advanced 0.8.37.dev0 (`parser.py`, `trainers/*/params.py`, `trainers/clm/`, `commands.py`,
`requirements.txt`), read statically. What it hands to the Trainer is read as the Trainer reads it
(`training_arguments.py`, `trl.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...source.node import Entry, Node
from ..core.arguments import Arguments, Given
from ..core.format import Format, JobBuilder, NoJobError, Problem, Reading, written_by
from ..core.keys import key_problems, load
from ..core.model_facts import find_model
from ..core.references import plain_document
from ..core.releases import released
from ..core.world_size import Stated, set_hardware
from ..hf_trainer import trl
from ..hf_trainer.peft_arguments import set_adapter, set_dtype, set_method, set_quantization
from ..hf_trainer.trainer_profiles import flavour
from ..hf_trainer.training_arguments import (
    Run,
    set_attention,
    set_batch,
    set_checkpointing,
    set_compile,
    set_evaluation,
    set_optimizer,
    set_precision,
    set_versions,
)
from ..hf_trainer.unsloth import set_unsloth

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import Project

NAME = "autotrain"
UPSTREAM = "AutoTrain 0.8.37.dev0"
VERSIONS = {"transformers": "4.48.0", "trl": "0.13.0", "peft": "0.14.0", "accelerate": "1.2.1"}
"""Those of its requirements.txt."""

_LLM = {"sft": "sft", "orpo": "orpo", "dpo": "dpo", "reward": "reward", "generic": "pretrain", "default": "pretrain"}
"""Trainers of the language models -> objective."""

_TASKS: tuple[tuple[str, str, str], ...] = (
    ("llm", "LLMTrainingParams", ""),
    ("lm_training", "LLMTrainingParams", ""),
    ("seq2seq", "Seq2SeqParams", "seq2seq"),
    ("text_token", "TokenClassificationParams", "token_classification"),
    ("token", "TokenClassificationParams", "token_classification"),
    ("text_single_column_regression", "TextRegressionParams", "classification"),
    ("text_regression", "TextRegressionParams", "classification"),
    ("text_extractive", "ExtractiveQuestionAnsweringParams", "question_answering"),
    ("ext", "ExtractiveQuestionAnsweringParams", "question_answering"),
    ("text", "TextClassificationParams", "classification"),
    ("vlm", "VLMTrainingParams", "sft"),
    ("st", "SentenceTransformersParams", ""),
    ("sentence", "SentenceTransformersParams", ""),
)
"""How a task begins, its parameters, and its objective; the first row that fits counts."""

_RENAMED = {
    "batch_size": "per_device_train_batch_size", "gradient_accumulation": "gradient_accumulation_steps",
    "optimizer": "optim", "lr": "learning_rate", "peft": "use_peft",
}  # fmt: skip
"""AutoTrain's parameter -> the argument that it becomes."""

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

_LENGTH = 1024
"""`configure_block_size` where `block_size` is -1 or absent, unless the tokenizer allows less."""


def recognise(document: Document) -> bool:
    """A YAML file with a `task`, a `base_model` and a `backend` or `data` section of AutoTrain's."""
    keys = set(document.root.keys())
    if document.syntax != "yaml" or not {"task", "base_model"} <= keys:
        return False
    return bool(keys & {"backend", "project_name"}) and bool(keys & {"data", "params"})


def read(document: Document, project: Project) -> Reading:
    """The Job of a task that trains a language model. Raises NoJobError for the others."""
    root, flags = document.root, document.syntax == "flags"
    whole = Arguments(root, dashes=flags)
    task, parameters, objective = _task(document, whole)
    builder = JobBuilder(document, UPSTREAM)
    reading = Reading(NAME, UPSTREAM, document, builder.job)
    section = root.get("params")
    arguments = whole if flags else Arguments(section if section and section.is_mapping else None, "params")
    given = _translated(arguments, seq2seq=objective == "seq2seq")
    versions = {**VERSIONS, **{name: stated for name, stated in project.versions.items() if stated}}
    language = parameters == "LLMTrainingParams"
    defaults = released(flavour("trl")._replace(versions={}), versions).defaults | _defaults(parameters, given)
    run = Run(builder, given, project, reading, defaults)
    builder.derived("kind", "training", "AutoTrain trains")
    set_versions(run, VERSIONS, "requirements.txt of AutoTrain")
    model = whole.text("model" if flags else "base_model")
    if model:
        run.put("model", model)
    else:
        builder.assumed("model", None, "no key names the model")
    if task:
        run.put("objective", task, objective)
    else:
        builder.default("objective", objective)
    if parameters == "TextRegressionParams" and task:
        run.put("labels", task, 1)
    _set_rows(run, parameters)
    set_precision(run)
    set_dtype(run)
    set_method(run)
    if builder.job.method == "full" and "use_peft" not in given:
        builder.default("method", "full", "peft false")
    set_quantization(run)
    set_adapter(run)
    set_optimizer(run)
    set_checkpointing(run)
    set_attention(run)
    set_compile(run)
    builder.default("loss.kernel", "torch")
    builder.default("liger_kernels", False)
    _set_unsloth(run, objective)
    packs = objective in ("sft", "pretrain") and language
    builder.derived("packing", packs, "rows are filled to block_size" if packs else "a row a sample", "objective")
    builder.default("padded", False, "rows are padded to the longest of a batch")
    trl.set_rl(builder, given, defaults, objective)
    _set_reference(run, objective)
    trl.set_lengths(builder, given, defaults, objective)
    _set_evaluation(run, whole, flags=flags, twice=not language)
    _set_sharding(run, whole, parameters)
    reading.problems = [*_key_problems(document, parameters), *reading.problems]
    return reading


def _task(document: Document, whole: Arguments) -> tuple[Given | None, str, str]:
    """The key of the task, the class of its parameters, and the objective."""
    if document.syntax == "flags":
        trainer = whole.text("trainer")
        name = trainer.value.lower() if trainer else "default"
        return trainer, "LLMTrainingParams", _LLM.get(name, "pretrain")
    task = whole.text("task")
    name = task.value.lower() if task else ""
    for start, parameters, objective in _TASKS:
        if name.startswith(start):
            if parameters == "SentenceTransformersParams":
                raise NoJobError(document.path, "sentence transformers train on losses over pairs, which are not known")
            own = document.root.find("params.trainer")
            stated = name.partition("-")[2] or (str(own.value.plain()) if own else "default")
            return task, parameters, objective or _LLM.get(stated, "pretrain")
    what = name or "no task"
    raise NoJobError(document.path, f"{what}: AutoTrain trains no language model with it")


def _translated(arguments: Arguments, *, seq2seq: bool) -> Arguments:
    """The parameters under the names of the arguments that they become, each where it is written."""
    given = Arguments(None, arguments.prefix)
    given.entries = {name.replace("-", "_"): entry for name, entry in arguments.entries.items()}

    def means(name: str, entry: Entry, value: Any) -> None:
        node = Node("scalar", value, entry.value.span, entry.value.raw)
        node.path = entry.value.path
        given.entries[name] = Entry(entry.key, node)

    for theirs, ours in _RENAMED.items():
        if theirs in given:
            given.entries[ours] = given.entries[theirs]
    precision = given.text("mixed_precision")
    if precision and precision.value.lower() in ("fp16", "bf16"):
        means(precision.value.lower(), precision.entry, value=True)
    off = given.flag("disable_gradient_checkpointing")
    if off:
        means("gradient_checkpointing", off.entry, value=not off.value)
    adapter, quantization = given.flag("use_peft"), given.raw("quantization")
    if adapter and adapter.value:
        word = str(quantization.value).lower() if quantization else "int8" if seq2seq else "int4"
        source = quantization or adapter
        if word in ("int4", "int8"):
            means("load_in_4bit" if word == "int4" else "load_in_8bit", source.entry, value=True)
    for name in ("model_max_length", "trainer"):
        given.entries.pop(name, None)
    return given


def _defaults(parameters: str, given: Arguments) -> dict[str, Any]:
    """What an absent parameter means."""
    language = parameters == "LLMTrainingParams"
    quantized = "load_in_4bit" in given or "load_in_8bit" in given
    known = load(NAME)["$defs"][parameters]["properties"]
    return {
        "bf16": False,
        "gradient_checkpointing": language,
        "reentrant": quantized if language else None,
        "optim": "adamw_torch",
        "max_length": _LENGTH if language else known.get("max_seq_length", {}).get("default"),
        "max_target_length": known.get("max_target_length", {}).get("default"),
        "max_prompt_length": known.get("max_prompt_length", {}).get("default"),
        "lora_r": 16,
        "lora_alpha": 32,
        "lora_dropout": 0.05,
        "lora_targets": "all-linear",
        "quant_type": "nf4",
        "double_quant": False,
    }


def _set_rows(run: Run, parameters: str) -> None:
    """`batch_size` and `gradient_accumulation`, whose defaults are the task's."""
    set_batch(run)
    known = load(NAME)["$defs"][parameters]["properties"]
    for path, argument, name in (
        ("micro_batch_size", "per_device_train_batch_size", "batch_size"),
        ("gradient_accumulation_steps", "gradient_accumulation_steps", "gradient_accumulation"),
    ):
        if argument not in run.arguments:
            run.builder.default(path, known[name]["default"])


UNSLOTH = "2025.1.8"
"""A release of the month of AutoTrain's last, which pins none."""

_UNSLOTH = frozenset({"llama", "mistral", "gemma", "qwen2"})
"""Model types that `get_model` gives to Unsloth."""


def _set_unsloth(run: Run, objective: str) -> None:
    """`unsloth` loads in the dtype of `mixed_precision`, and with an adapter wraps the layers."""
    given, builder = run.arguments.flag("unsloth"), run.builder
    if not given or not given.value or objective not in ("sft", "pretrain"):
        return
    model = find_model(builder.job.model, builder.document.path, run.project.root)
    if model is None or model.config.get("model_type") not in _UNSLOTH:
        return
    run.builder.from_entry("weights.dtype", builder.job.precision.autocast, given.entry, given.key, "Unsloth's load")
    if builder.job.method == "lora":
        set_unsloth(run, given, UNSLOTH, "offload")


def _set_reference(run: Run, objective: str) -> None:
    """The reference of DPO: a copy of the model that TRL makes, or `model_ref`; with PEFT none."""
    named = run.arguments.text("model_ref")
    if objective == "dpo" and named and run.builder.job.method == "full":
        run.put("rl.reference_model", named, value=True, note="a second model")


def _set_evaluation(run: Run, whole: Arguments, *, flags: bool, twice: bool) -> None:
    """Rows of evaluation: as many as in training, or twice as many; none without a `valid_split`."""
    split = (whole if flags else whole.mapping("data")).raw("valid_split")
    set_evaluation(run)
    if split is None or split.value in (None, "", "null"):
        run.builder.default("evaluation.micro_batch_size", None, "no valid_split")
        return
    rows = (run.builder.job.micro_batch_size or 1) * (2 if twice else 1)
    run.put("evaluation.micro_batch_size", split, rows, "batch_size" + (" x 2" if twice else ""))
    run.builder.derived("evaluation.keeps_logits", False, "only the loss is kept")


def _set_sharding(run: Run, whole: Arguments, parameters: str) -> None:
    """The GPUs of `backend`; `distributed_backend: deepspeed` is ZeRO-3 where there are several."""
    builder = run.builder
    backend, way = whole.text("backend"), run.arguments.text("distributed_backend")
    machine = _BACKENDS.get(backend.value) if backend else None
    stated = Stated(machine[1], backend.entry, "backend", backend.value) if machine and backend else None
    zero = bool(way and way.value == "deepspeed")
    set_hardware(builder, run.project, stated, sharded=zero)
    if machine and backend and run.project.gpu is None:
        run.put("hardware.gpu", backend, machine[0])
    for name in ("tensor", "pipeline", "context"):
        builder.default(f"parallelism.{name}", 1)
    builder.default("parallelism.fsdp", None)
    builder.default("parallelism.zero", None)
    gpus = builder.job.hardware.gpus or 1
    if zero and way and gpus > 1:
        _set_zero(run, way)
    elif parameters in ("Seq2SeqParams", "VLMTrainingParams") and gpus > 2 and not _quantized_bf16(run):
        _set_zero(run, None)


def _quantized_bf16(run: Run) -> bool:
    job = run.builder.job
    return job.weights.quantization is not None and job.precision.autocast == "bfloat16"


def _set_zero(run: Run, way: Given | None) -> None:
    """`accelerate launch --use_deepspeed --zero_stage 3` without offload (`commands.py`)."""
    from ..deepspeed.config import apply
    from ..hf_trainer.sharding import auto_values

    inline = plain_document({"zero_optimization": {"stage": 3}}, "deepspeed")
    apply(run.builder, inline, auto_values(run)._replace(client="accelerate"))
    if way:
        run.put("parallelism.zero.stage", way, 3, "launched with ZeRO-3")
    else:
        run.builder.default("parallelism.zero.stage", 3, "launched with ZeRO-3 on three GPUs and more")


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


describe, edits = written_by("autotrain.edits")


FORMAT = Format(NAME, "AutoTrain config", UPSTREAM, recognise, read, describe, edits, "`backend`")
