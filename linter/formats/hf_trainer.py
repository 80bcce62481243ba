"""Transformers Trainer and TRL configs, YAML and JSON: `trl sft --config`, alignment-handbook, open-r1, open-instruct,
Firefly, and scripts around `transformers.Trainer`.

The program that reads a file decides its defaults (`flavours.py`); what TrainingArguments mean is in
`training_arguments.py`, trainers and objectives in `trl.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .arguments import Arguments
from .flavours import Flavour, flavour_of
from .format import Format, JobBuilder, Problem, Reading
from .keys import key_problems, load
from .training_arguments import (
    MODEL_KEYS,
    Run,
    mixed_precision,
    set_attention,
    set_batch,
    set_checkpointing,
    set_compile,
    set_evaluation,
    set_model,
    set_optimizer,
    set_precision,
    set_versions,
)
from .training_sharding import set_sharding
from .trl import set_lengths, set_objective, set_rl

if TYPE_CHECKING:
    from ..source.document import Document
    from .arguments import Given
    from .format import Project

NAME = "hf_trainer"
UPSTREAM = "transformers 5.23.0, trl 1.16.0"

_TRAINING = frozenset(
    {
        "per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps", "learning_rate",
        "num_train_epochs", "lr_scheduler_type", "gradient_checkpointing", "warmup_ratio", "warmup_steps", "max_steps",
        "logging_steps", "save_steps", "eval_strategy", "evaluation_strategy", "bf16", "fp16", "optim", "weight_decay",
        "output_dir", "save_strategy", "activation_checkpointing",
    }
)  # fmt: skip
"""Keys of TrainingArguments that a training config nearly always has some of."""

_OTHERS = frozenset(
    {
        "base_model", "_component_", "architectures", "finetuning_type", "stage", "infer_backend", "export_dir",
        "compute_environment", "distributed_type", "checkpoint_dir", "peft_type", "gpulint", "defaults", "trainer",
        "recipe", "apiVersion", "kind", "services", "resources", "zero_optimization", "zero_stage",
    }
)  # fmt: skip
"""Keys that say another tool: its file may hold the same words."""

_PEFT_SWITCHES = ("use_peft", "use_lora", "lora", "enable_lora")

_DTYPES = {
    "bfloat16": "bfloat16", "bf16": "bfloat16", "float16": "float16", "fp16": "float16", "half": "float16",
    "float32": "float32", "fp32": "float32", "float": "float32", "float64": "float64",
}  # fmt: skip


def recognise(document: Document) -> bool:
    """A model key with TrainingArguments keys beside it; without one, a file mostly of TrainingArguments keys.

    `peft_type` excludes adapter_config.json, unless training keys stand beside it.
    """
    root = document.root
    keys = set(root.keys())
    training = keys & _TRAINING
    if keys & (_OTHERS - {"peft_type"}) or document.syntax == "toml" or ("peft_type" in keys and len(training) < 2):
        return False
    if "model_name_or_path" in keys:
        return bool(training)
    if not keys & {"per_device_train_batch_size", "gradient_accumulation_steps"} or len(training) < 3:
        return False
    known = load(NAME)["properties"]
    return sum(key in known for key in keys) * 2 > len(keys)


def read(document: Document, project: Project) -> Reading:
    """The Job of a training config, every memory field with its origin."""
    flavour = flavour_of(document)
    builder = JobBuilder(document, flavour.upstream)
    reading = Reading(NAME, flavour.upstream, document, builder.job)
    run = Run(builder, Arguments(document.root), project, reading, flavour.defaults)
    builder.derived("kind", "training", "a training config")
    set_versions(run, flavour.versions, f"what {flavour.title} runs on")
    set_model(run)
    objective = set_objective(builder, run.arguments)
    set_batch(run)
    set_precision(run)
    _set_dtype(run)
    _set_method(run)
    _set_quantization(run)
    _set_adapter(run)
    set_optimizer(run)
    set_checkpointing(run)
    set_attention(run)
    set_compile(run)
    _set_loss(run, flavour, objective)
    _set_packing(run, flavour)
    set_rl(builder, run.arguments, flavour.defaults, objective)
    set_lengths(builder, run.arguments, flavour.defaults, objective)
    set_evaluation(run)
    set_sharding(run)
    _force_reentrant(run, flavour)
    reading.problems = _key_problems(document, flavour) + reading.problems
    return reading


def _key_problems(document: Document, flavour: Flavour) -> list[Problem]:
    """Keys that nothing knows. A program with keys of its own accepts what it likes, so there only a key that looks
    like a misspelt one is reported, and none for being old.
    """
    problems = key_problems(document, NAME)
    if not flavour.own_parser:
        return problems
    written = set(document.root.keys())
    return [
        item._replace(values={**item.values, "upstream": flavour.upstream})
        for item in problems
        if item.kind == "wrong-type"
        or (item.kind == "unknown-key" and item.values["suggestion"] and item.values["suggestion"] not in written)
    ]


def _set_dtype(run: Run) -> None:
    """`weights.dtype`: `dtype` (once `torch_dtype`), in a mapping for the model too.

    "auto" and a plain Transformers 5 `from_pretrained` take the checkpoint's own; TRL takes float32.
    """
    given = run.arguments.raw("dtype", "torch_dtype")
    nested = run.arguments.mapping("model_init_kwargs").raw("dtype", "torch_dtype")
    chosen = nested or given
    written = str(chosen.value).removeprefix("torch.") if chosen and chosen.value is not None else None
    default = run.defaults["dtype"]
    if chosen and written == "auto":
        run.builder.from_entry("weights.dtype", None, chosen.entry, chosen.key, "the checkpoint's own dtype")
    elif chosen and written in _DTYPES:
        run.put("weights.dtype", chosen, _DTYPES[written])
    elif default == "precision":
        dtype, flag = mixed_precision(run)
        if flag:
            run.put("weights.dtype", flag, dtype or "bfloat16")
        else:
            run.builder.default("weights.dtype", dtype or "bfloat16")
    elif default == "checkpoint":
        run.builder.default("weights.dtype", None, f"the checkpoint's own: default of {run.builder.upstream}")
    else:
        run.builder.default("weights.dtype", default)


def _set_method(run: Run) -> None:
    """`full` or `lora`: TRL's `use_peft`, other programs' switches, and LoRA keys without a switch elsewhere."""
    mode = run.arguments.text("train_mode")
    if mode and mode.value in ("full", "lora", "qlora"):
        run.put("method", mode, "full" if mode.value == "full" else "lora")
        return
    switch = next((g for name in _PEFT_SWITCHES if (g := run.arguments.flag(name))), None)
    quantized = run.arguments.flag("use_qlora")
    if quantized and quantized.value:
        run.put("method", quantized, "lora")
    elif switch:
        run.put("method", switch, "lora" if switch.value else "full")
    elif run.builder.upstream.startswith("trl"):
        run.builder.default("method", "full", f"use_peft is off: default of {run.builder.upstream}")
    else:
        sign = run.arguments.raw("lora_r", "lora_rank", "lora_target_modules", "peft_type")
        if sign and sign.value:
            run.put("method", sign, "lora", f"{sign.key} is a LoRA key")
        else:
            run.builder.default("method", "full")


def _set_quantization(run: Run) -> None:
    """bitsandbytes: `load_in_4bit`, `load_in_8bit`, QLoRA switches."""
    four = run.arguments.flag("load_in_4bit", "use_qlora")
    eight = run.arguments.flag("load_in_8bit")
    mode = run.arguments.text("train_mode")
    if four and four.value:
        _put_four_bit(run, four)
    elif mode and mode.value == "qlora":
        _put_four_bit(run, mode)
    elif eight and eight.value:
        run.put("weights.quantization.method", eight, "bnb-int8")
        run.put("weights.quantization.bits", eight, 8)
    else:
        run.builder.default("weights.quantization", None)


def _put_four_bit(run: Run, given: Given) -> None:
    builder = run.builder
    kind = run.arguments.text("bnb_4bit_quant_type")
    if kind and kind.value in ("nf4", "fp4"):
        run.put("weights.quantization.method", kind, f"bnb-{kind.value}")
    else:
        note = f"{run.defaults['quant_type']}: default of {builder.upstream}"
        run.put("weights.quantization.method", given, f"bnb-{run.defaults['quant_type']}", note)
    run.put("weights.quantization.bits", given, 4)
    double = run.arguments.flag("use_bnb_nested_quant", "bnb_4bit_use_double_quant", "use_nested_quant")
    if double:
        run.put("weights.quantization.double_quant", double)
    else:
        builder.default("weights.quantization.double_quant", run.defaults["double_quant"])
    storage = run.arguments.text("bnb_4bit_quant_storage", "bnb_4bit_quant_storage_dtype")
    if storage:
        name = storage.value.removeprefix("torch.")
        run.put("weights.quantization.storage_dtype", storage, _DTYPES.get(name, name))
    else:
        builder.default("weights.quantization.storage_dtype", None)


def _set_adapter(run: Run) -> None:
    """The LoRA adapter (TRL's ModelConfig keys and their common other spellings)."""
    if run.builder.job.method != "lora":
        run.builder.derived("adapter", None, "no adapter", "method")
        return
    builder, defaults, arguments = run.builder, run.defaults, run.arguments
    dora = arguments.flag("use_dora")
    if dora and dora.value:
        run.put("adapter.type", dora, "dora")
    else:
        builder.derived("adapter.type", "lora", "LoRA", "method")
    for path, names, default in (
        ("adapter.r", ("lora_r", "lora_rank"), defaults["lora_r"]),
        ("adapter.alpha", ("lora_alpha",), defaults["lora_alpha"]),
        ("adapter.dropout", ("lora_dropout",), defaults["lora_dropout"]),
    ):
        given = arguments.integer(*names, least=1) if path == "adapter.r" else arguments.number(*names)
        if given:
            run.put(path, given)
        else:
            builder.default(path, default)
    _set_targets(run)
    saved = arguments.words("lora_modules_to_save", "modules_to_save")
    if saved:
        run.put("adapter.modules_to_save", saved)
    else:
        builder.default("adapter.modules_to_save", [])
    _set_adapter_dtypes(run)


def _set_targets(run: Run) -> None:
    given = run.arguments.words("lora_target_modules", "lora_target", "target_modules")
    if given is None:
        note = "" if run.defaults["lora_targets"] else "what PEFT targets in this architecture"
        run.builder.default("adapter.targets", run.defaults["lora_targets"], note)
    elif given.value in (["all-linear"], ["all"]):
        run.put("adapter.targets", given, "all-linear")
    else:
        run.put("adapter.targets", given)


def _set_adapter_dtypes(run: Run) -> None:
    """What happens to dtypes around a quantised base: PEFT's k-bit preparation, TRL's cast of adapters to bf16."""
    builder, quantization = run.builder, run.builder.job.weights.quantization
    kbit = run.defaults["prepare_kbit"]
    bfloat16 = mixed_precision(run)[0] == "bfloat16"
    four = quantization is not None and quantization.bits == 4
    casts = bool(run.defaults.get("kbit_adapter_dtype")) and quantization is not None
    if kbit == "8bit":
        casts = casts and four and bfloat16
        kbit = not casts
    builder.default("adapter.prepare_kbit", bool(kbit) and quantization is not None)
    if casts:
        note = f"{builder.upstream} casts adapters over a quantised base to bfloat16"
        builder.derived("adapter.dtype", run.defaults["kbit_adapter_dtype"], note, "weights.quantization.method")
    else:
        builder.default("adapter.dtype", None, "as PEFT chooses")


def _set_loss(run: Run, flavour: Flavour, objective: str) -> None:
    """Where the logits live. TRL 1.16 projects in tiles and never holds them; Liger fuses them in a plain Trainer."""
    builder = run.builder
    liger = run.arguments.flag("use_liger_kernel", "use_liger")
    fused = run.arguments.mapping("liger_kernel_config").flag("fused_linear_cross_entropy")
    if liger:
        run.put("liger_kernels", liger)
    else:
        builder.default("liger_kernels", False)
    chunked = flavour.defaults["loss"] == "chunked" and objective != "reward"
    smoothing = run.arguments.number("label_smoothing_factor")
    if chunked and smoothing and smoothing.value > 0 and objective == "sft":
        run.put("loss.kernel", smoothing, "torch", "label smoothing needs the whole logits")
    elif chunked:
        note = f"{builder.upstream} scores tokens in tiles without the whole logits"
        builder.default("loss.kernel", "chunked", note)
        builder.default("loss.chunk", flavour.defaults["loss_chunk"], "tokens a tile (trl/kernels/chunked_logprob.py)")
    elif liger and liger.value and not (fused and not fused.value) and objective in ("sft", "pretrain"):
        run.put("loss.kernel", liger, "liger")
    else:
        builder.default("loss.kernel", "torch")


def _set_packing(run: Run, flavour: Flavour) -> None:
    given = run.arguments.flag("packing")
    if given:
        run.put("packing", given)
    elif flavour.name == "firefly" and run.builder.job.objective == "pretrain":
        run.builder.derived("packing", True, "Firefly packs its pretraining rows", "objective")
    else:
        run.builder.default("packing", False)
    run.builder.default("padded", False, "rows are padded to the longest of a batch")


def _force_reentrant(run: Run, flavour: Flavour) -> None:
    """TRL forces reentrant checkpointing for PEFT under ZeRO-3 (`sft_trainer.py`)."""
    job = run.builder.job
    zero: Any = job.parallelism.zero
    if flavour.name == "trl" and job.adapter is not None and zero is not None and zero.stage == 3:
        run.builder.derived("reentrant", True, "TRL forces it for PEFT under ZeRO-3", "parallelism.zero.stage")


def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
    """The change in this format's words."""
    from .hf_trainer_edits import describe as words

    return words(reading, changes)


def edits(reading: Reading, changes: dict[str, Any]) -> list[Any] | None:
    """The edits that make the change."""
    from .hf_trainer_edits import edits as make

    return make(reading, changes)


FORMAT = Format(NAME, "Transformers/TRL config", UPSTREAM, recognise, read, describe, edits)

__all__ = ["FORMAT", "MODEL_KEYS"]
