"""H2O LLM Studio experiment configs: one YAML a run, over Hugging Face models with LoRA.

Facts from h2o_llmstudio 1.14.9 (`python_configs/*.py`, `src/utils/modeling_utils.py`, `train.py`), read statically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.format import Format, JobBuilder, NoJobError, Reading, written_by
from ..core.keys import key_problems
from ..core.sections import DTYPES, Filling, Sections
from ..core.world_size import Stated, set_hardware

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import Project

NAME = "h2o_llmstudio"
UPSTREAM = "h2o_llmstudio 1.14.9"
VERSIONS = {"transformers": "4.56.1", "peft": "0.17.1"}
"""What its pyproject.toml pins."""

_OPTIMIZERS = {"AdamW8bit": "adamw_8bit", "Adam": "adamw_torch", "AdamW": "adamw_torch", "SGD": "sgd_momentum",
               "RMSprop": "rmsprop"}  # fmt: skip
_DPO_LOSSES = {"DPOLoss": "dpo", "HingeLoss": "dpo", "IPOLoss": "dpo", "KTOPairLoss": "kto", "CPOLoss": "cpo",
               "SimPOLoss": "simpo"}  # fmt: skip
NULLS = frozenset({"none", ""})


def recognise(document: Document) -> bool:
    """A YAML file with `llm_backbone` and a section of the experiment."""
    root = document.root
    return (
        document.syntax == "yaml"
        and root.entry("llm_backbone") is not None
        and not {"architecture", "training", "problem_type"}.isdisjoint(root.keys())
    )


def read(document: Document, project: Project) -> Reading:
    """The Job of an experiment. Raises NoJobError where it is to run on the CPU."""
    builder = JobBuilder(document, UPSTREAM)
    reading = Reading(NAME, UPSTREAM, document, builder.job)
    values, filling = Sections(document.root), Filling(builder)
    gpus = values.raw("environment.gpus")
    if gpus is not None and gpus.value == []:
        raise NoJobError(document.path, "environment.gpus is empty: it runs on the CPU")
    builder.derived("kind", "training", "an experiment")
    builder.versions(VERSIONS, project.versions, f"what {UPSTREAM} runs on")
    model = values.text("llm_backbone")
    if model:
        filling.put("model", model)
    else:
        builder.assumed("model", None, "no key names the model")
    _set_objective(filling, values)
    _set_weights(filling, values)
    _set_adapter(filling, values)
    _set_training(filling, values)
    listed = gpus.value if gpus is not None and isinstance(gpus.value, list) else []
    count = len(listed)
    stated = Stated(count, gpus.entry, gpus.key, "GPUs listed") if gpus is not None and count else None
    set_hardware(builder, project, stated, sharded=False)
    _set_sharding(filling, values)
    reading.problems = key_problems(document, NAME)
    return reading


def _set_objective(filling: Filling, values: Sections) -> None:
    kind, loss = values.text("problem_type"), values.text("training.loss_function")
    if kind and kind.value == "text_dpo_modeling":
        objective = _DPO_LOSSES.get(loss.value, "dpo") if loss else "dpo"
        filling.put("objective", kind, objective)
    elif kind and ("classification" in kind.value or "regression" in kind.value):
        filling.put("objective", kind, "reward", "a head of few classes, as a reward model has")
    elif kind:
        filling.put("objective", kind, "sft")
    else:
        filling.builder.default("objective", "sft")
    filling.builder.derived("rl.reference_model", False, "the base model without its adapter is the reference")


def _set_weights(filling: Filling, values: Sections) -> None:
    """int4 is NF4 and int8 LLM.int8(), both over float16; anything else a dtype."""
    builder = filling.builder
    dtype = values.text("architecture.backbone_dtype")
    word = dtype.value if dtype else "int4"
    path = "weights.quantization."
    if word in ("int4", "int8"):
        method, bits = ("bnb-nf4", 4) if word == "int4" else ("bnb-int8", 8)
        if dtype:
            filling.put(f"{path}method", dtype, method)
            filling.put(f"{path}bits", dtype, bits)
        else:
            builder.default(f"{path}method", method)
            builder.default(f"{path}bits", bits)
        builder.default(f"{path}double_quant", False)
        builder.default("weights.dtype", "float16", "what it loads beside packed weights")
    else:
        builder.default("weights.quantization", None)
        filling.fill("weights.dtype", dtype._replace(value=DTYPES.get(word)) if dtype else None, None)
    half = values.text("environment.mixed_precision_dtype")
    on = values.flag("environment.mixed_precision")
    autocast = DTYPES.get(half.value) if half else "bfloat16"
    if on and not on.value:
        filling.nothing("precision.autocast", on, "mixed precision is off")
    elif half:
        filling.put("precision.autocast", half, autocast)
    else:
        builder.default("precision.autocast", autocast)
    builder.default("precision.master_weights", False)
    builder.derived("precision.gradients", None, "gradients have the dtype of their weight")
    attention = values.text("training.attention_implementation")
    chosen = attention if attention and attention.value != "auto" else None
    filling.fill("attention", chosen, "sdpa", "what Transformers picks")
    builder.default("liger_kernels", False)
    filling.fill("compile", values.flag("environment.compile_model"), False)


def _set_adapter(filling: Filling, values: Sections) -> None:
    builder = filling.builder
    lora = values.flag("training.lora")
    if lora and not lora.value:
        filling.put("method", lora, "full")
        builder.derived("adapter", None, "no adapter", "method")
        builder.default("trainable", None, "all weights")
        return
    if lora:
        filling.put("method", lora, "lora")
    else:
        builder.default("method", "lora")
    dora = values.flag("training.use_dora")
    builder.derived("adapter.type", "dora" if dora and dora.value else "lora", "LoRA", "method")
    filling.fill("adapter.r", values.integer("training.lora_r", least=1), 4)
    filling.fill("adapter.alpha", values.number("training.lora_alpha"), 16)
    filling.fill("adapter.dropout", values.number("training.lora_dropout"), 0.05)
    targets = values.words("training.lora_target_modules")
    if targets and any(targets.value):
        filling.put("adapter.targets", targets)
    else:
        builder.default("adapter.targets", "all-linear", "every linear layer but the head")
    builder.default("adapter.modules_to_save", [])
    builder.default("adapter.prepare_kbit", False)
    builder.default("adapter.dtype", None, "as PEFT chooses")
    builder.derived("trainable", None, "the adapter alone", "method")


def _set_training(filling: Filling, values: Sections) -> None:
    builder = filling.builder
    filling.fill("micro_batch_size", values.integer("training.batch_size", least=1), 2)
    filling.fill("gradient_accumulation_steps", values.integer("training.grad_accumulation", least=1), 1)
    filling.fill("sequence_length", values.integer("tokenizer.max_length", least=1), 512)
    builder.default("packing", False)
    quantile = values.number("tokenizer.padding_quantile")
    builder.default("padded", bool(quantile and quantile.value == 0), "padding_quantile above 0 cuts to the longest")
    given = values.flag("architecture.gradient_checkpointing")
    if given:
        filling.put("activation_checkpointing", given, "full" if given.value else "none")
    else:
        builder.default("activation_checkpointing", "full")
    builder.default("reentrant", False)
    optimizer = values.text("training.optimizer")
    if optimizer:
        filling.put("optimizer.name", optimizer, _OPTIMIZERS.get(optimizer.value, optimizer.value.lower()))
    else:
        builder.default("optimizer.name", "adamw_torch")
    builder.default("loss.kernel", "torch")
    batch = values.integer("prediction.batch_size_inference", least=1)
    if batch:
        filling.put("evaluation.micro_batch_size", batch)
    else:
        same = "0: as in training"
        builder.derived("evaluation.micro_batch_size", builder.job.micro_batch_size, same, "micro_batch_size")
    builder.derived("evaluation.keeps_logits", False, "only losses and generated text are kept")


def _set_sharding(filling: Filling, values: Sections) -> None:
    """`use_deepspeed` with ZeRO2 or ZeRO3; else plain data parallelism."""
    builder = filling.builder
    for name in ("tensor", "pipeline", "context"):
        builder.default(f"parallelism.{name}", 1)
    builder.default("parallelism.fsdp", None)
    on, method = values.flag("environment.use_deepspeed"), values.text("environment.deepspeed_method")
    if not on or not on.value or (builder.job.hardware.gpus or 1) < 2:
        builder.default("parallelism.zero", None)
        return
    stage = 3 if method and method.value == "ZeRO3" else 2
    filling.put("parallelism.zero.stage", method or on, stage)
    for field, key in (
        ("reduce_bucket_size", "reduce_bucket_size"),
        ("allgather_bucket_size", "allgather_bucket_size"),
        ("prefetch_bucket_size", "stage3_prefetch_bucket_size"),
        ("param_persistence_threshold", "stage3_param_persistence_threshold"),
    ):
        given = values.integer(f"environment.deepspeed_{key}", least=1)
        filling.fill(f"parallelism.zero.{field}", given, 1_000_000)


describe, edits = written_by("native.h2o_llmstudio_edits")


FORMAT = Format(NAME, "H2O LLM Studio experiment", UPSTREAM, recognise, read, describe, edits, "`environment.gpus`")
