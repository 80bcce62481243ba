"""LLaMA-Factory configs: training, inference, evaluation and export, YAML or JSON.

Facts from llamafactory 0.9.5 (`hparams/*.py`, `model/loader.py`, `model/adapter.py`, `model/patcher.py`,
`model/model_utils/*.py`), read statically. It runs on transformers <= 5.6.0 and peft <= 0.18.1 (its METADATA).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...upstream import llamafactory, transformers
from ...upstream.behaviour import default_of
from ..accelerate.launch import launch_of
from ..core.arguments import Arguments
from ..core.format import Format, JobBuilder, Problem, Reading, written_by
from ..core.keys import default, key_problems
from ..hf_trainer import image_inputs
from ..hf_trainer.placeholder_keys import settle
from ..hf_trainer.sharding import set_sharding
from ..hf_trainer.training_arguments import (
    ATTENTION,
    Run,
    set_batch,
    set_compile,
    set_evaluation,
    set_model,
    set_optimizer,
    set_precision,
    set_versions,
    smooths,
)
from ..hf_trainer.unsloth import set_unsloth
from .inference import read_inference
from .megatron import is_megatron, set_megatron
from .method import set_base, set_low_rank, set_method, set_rl

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import Project

NAME = "llamafactory"
UPSTREAM = "llamafactory 0.9.5"
VERSIONS = {"llamafactory": "0.9.5", "transformers": "5.6.0", "peft": "0.18.1"}

UNSLOTH = "2026.8.19"
"""LLaMA-Factory takes whichever is installed."""

DEFAULTS: dict[str, Any] = {
    "bf16": False, "optim": "adamw_torch_fused", "gradient_checkpointing": True, "reentrant": True, "attention": "sdpa",
    "cutoff_len": 2048,
}  # fmt: skip
"""Defaults of `hparams` that `TrainingArguments` readers ask for by name."""

FORMER_PROGRAM = "train_bash.py"
FORMER_VERSIONS = {"llamafactory": "0.6.3", "transformers": "4.39.3", "peft": "0.10.0"}
"""Up to 0.7.0 runs were started by `src/train_bash.py`: the last release before sdpa came back, and what it allowed."""

_OWN = frozenset(
    {
        "finetuning_type", "infer_backend", "export_dir", "cutoff_len", "quantization_bit", "lora_target", "lora_rank",
        "neat_packing", "pref_loss", "use_galore", "use_apollo", "use_badam", "flash_attn", "enable_liger_kernel",
        "freeze_trainable_layers", "disable_gradient_checkpointing", "val_size", "dataset_dir", "adapter_name_or_path",
        "predict_with_generate", "vllm_maxlen", "pure_bf16",
    }
)  # fmt: skip
"""Keys that only LLaMA-Factory has."""

_STAGES = {"pt": "pretrain", "sft": "sft", "rm": "reward", "ppo": "ppo", "dpo": "dpo", "kto": "kto"}


def recognise(document: Document) -> bool:
    """`model_name_or_path` and `stage`, or a key that only LLaMA-Factory has, or a chat template with a backend."""
    keys = set(document.root.keys())
    if document.syntax == "toml" or "model_name_or_path" not in keys:
        return False
    stage = document.root.get("stage")
    return bool(
        keys & {"finetuning_type", "infer_backend", "export_dir"}
        or (stage is not None and stage.is_scalar and stage.value in _STAGES)
        or ("template" in keys and keys & _OWN)
    )


def read(document: Document, project: Project) -> Reading:
    """The Job of a run: training when it trains, else what generates, evaluates or exports."""
    builder = JobBuilder(document, UPSTREAM)
    reading = Reading(NAME, UPSTREAM, document, builder.job)
    launch = launch_of(reading, project) if _trains(Arguments(document.root)) else None
    former = FORMER_PROGRAM in document.text[: document.root.span.start]
    versions = FORMER_VERSIONS if former else VERSIONS
    release = project.versions.get(transformers.NAME, versions[transformers.NAME])
    defaults = {**DEFAULTS, "optim": default_of(transformers.DEFAULTS, release, "optim", DEFAULTS["optim"])}
    run = Run(builder, Arguments(document.root), project, reading, defaults, launch)
    set_versions(run, versions, f"src/{FORMER_PROGRAM}: up to 0.7.0" if former else f"what {UPSTREAM} allows")
    set_model(run)
    if run.arguments.is_on("use_kt"):
        builder.assumed("model", None, "KTransformers keeps the experts in main memory, which is not estimated")
    if _trains(run.arguments):
        _read_training(run)
    else:
        read_inference(run)
    reading.problems = _key_problems(run) + reading.problems
    return reading


def _key_problems(run: Run) -> list[Problem]:
    """Unknown, mistyped and removed keys; beside Megatron's arguments only what looks like a misspelt key."""
    problems = key_problems(run.builder.document, NAME)
    if not is_megatron(run.arguments):
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


def _read_training(run: Run) -> None:
    builder = run.builder
    builder.derived("kind", "training", "a training run")
    objective = _set_objective(run)
    set_batch(run)
    set_precision(run)
    _set_float8(run)
    set_method(run)
    set_base(run)
    set_optimizer(run)
    set_low_rank(run)
    _set_checkpointing(run)
    _set_attention(run)
    set_compile(run)
    _set_loss(run, objective)
    _set_lengths(run, objective)
    image_inputs.at_most(run, "image_max_pixels", default(NAME, "image_max_pixels"))
    set_rl(run, objective)
    measured, generated = run.arguments.flag("compute_accuracy"), run.arguments.flag("predict_with_generate")
    accuracy = bool(measured and measured.value) and not (generated and generated.value)
    set_evaluation(run, metrics=accuracy, trainers=())
    set_sharding(run, run.launch)
    if (given := run.arguments.flag("use_unsloth")) and given.value:
        set_unsloth(run, given, UNSLOTH, "offload")
    if is_megatron(run.arguments):
        set_megatron(run)
    settle(builder, run.arguments)


def _set_float8(run: Run) -> None:
    """`fp8` with torchao's linear layers, or Transformer Engine's where `fp8_backend` says so."""
    given = run.arguments.flag("fp8")
    if given and given.value:
        backend = run.arguments.text("fp8_backend")
        engine = backend is not None and backend.value.lower() in ("te", "transformer_engine")
        run.put("precision.compute", given, "float8-te" if engine else "float8")
    else:
        run.builder.default("precision.compute", None)


def _set_objective(run: Run) -> str:
    stage = run.arguments.text("stage")
    loss = run.arguments.text("pref_loss")
    if stage and stage.value == "dpo" and loss and loss.value in ("orpo", "simpo"):
        run.put("objective", loss)
        return str(loss.value)
    if stage and stage.value in _STAGES:
        run.put("objective", stage, _STAGES[stage.value])
        return _STAGES[stage.value]
    run.builder.default("objective", "sft")
    return "sft"


def _set_checkpointing(run: Run) -> None:
    """On unless `disable_gradient_checkpointing`; HF's own key cannot turn it off (`checkpointing.py`)."""
    off = run.arguments.flag("disable_gradient_checkpointing")
    offload = run.arguments.flag("use_unsloth_gc")
    hf = run.arguments.flag("gradient_checkpointing", "activation_checkpointing")
    if off and off.value and hf and hf.value:
        run.put("activation_checkpointing", hf, "full")
    elif off:
        run.put("activation_checkpointing", off, "none" if off.value else "full")
    elif offload and offload.value:
        run.put("activation_checkpointing", offload, "offload")
    else:
        run.builder.default("activation_checkpointing", "full")
    reentrant = run.arguments.flag("use_reentrant_gc")
    if reentrant:
        run.put("reentrant", reentrant)
    else:
        run.builder.default("reentrant", True)


def _set_attention(run: Run) -> None:
    given = run.arguments.text("flash_attn")
    if given and given.value in ATTENTION:
        run.put("attention", given, ATTENTION[given.value])
    elif given:
        run.put("attention", given, "sdpa", "auto: what the model prefers")
    elif switch := run.arguments.flag("flash_attn"):
        run.put("attention", switch, "flash_attention_2" if switch.value else "eager", "a switch up to 0.6.3")
    else:
        version = _version(run)
        kernel = default_of(llamafactory.DEFAULTS, version, "attention", run.defaults["attention"])
        run.builder.default("attention", kernel, f"flash_attn: default of llamafactory {version}")


def _version(run: Run) -> str:
    """The release that is stated, else that of the program."""
    return run.builder.job.versions[NAME]


def _set_loss(run: Run, objective: str) -> None:
    """Liger fuses the head and the loss only where nobody asks for logits: stages pt and sft (`liger_kernel.py`)."""
    liger = run.arguments.flag("enable_liger_kernel", "use_liger_kernel")
    if liger:
        run.put("liger_kernels", liger)
    else:
        run.builder.default("liger_kernels", False)
    if smooths(run, objective):
        return
    if liger and liger.value and objective in ("sft", "pretrain"):
        run.put("loss.kernel", liger, "liger")
    else:
        run.builder.default("loss.kernel", "torch")
    if objective in ("dpo", "kto", "orpo", "simpo"):
        note = "the log-softmax of all logits in float32 (train/trainer_utils.py `get_batch_logps`)"
        run.builder.derived("loss.log_softmax", "float32", note, "objective")
    if objective == "reward":
        note = "TRL's value head stands beside lm_head, whose logits are made all the same"
        run.builder.derived("loss.logits_unused", True, note, "objective")


def _set_lengths(run: Run, objective: str) -> None:
    """`cutoff_len`, one less when packed, and packing, which is on by itself only for stage pt (`data_args.py`)."""
    packing = run.arguments.flag("packing")
    neat = run.arguments.flag("neat_packing")
    if neat and neat.value:
        run.put("packing", neat)
    elif packing:
        run.put("packing", packing)
    elif objective == "pretrain":
        run.builder.derived("packing", True, f"stage pt packs: default of {UPSTREAM}", "objective")
    else:
        run.builder.default("packing", False)
    given = run.arguments.integer("cutoff_len", least=1)
    if given:
        run.put("sequence_length", given)
    else:
        version = _version(run)
        length = default_of(llamafactory.DEFAULTS, version, "cutoff_len", run.defaults["cutoff_len"])
        run.builder.default("sequence_length", length, f"default of llamafactory {version}")
    run.builder.default("padded", False, "rows are padded to the longest of a batch")


describe, edits = written_by("llamafactory.edits")


FORMAT = Format(NAME, "LLaMA-Factory config", UPSTREAM, recognise, read, describe, edits)
