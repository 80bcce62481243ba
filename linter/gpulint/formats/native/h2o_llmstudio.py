"""H2O LLM Studio experiment configs: one YAML a run, over Hugging Face models with LoRA.

Facts from h2o_llmstudio 1.14.9 (`python_configs/*.py`, `src/utils/modeling_utils.py`, `train.py`), read statically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.backends.lora import TRAINABLE, lora
from ..core.backends.plain import packages
from ..core.bindings.kinds import FLAG, NUMBER, POSITIVE, TEXT, WORDS, Unsaid
from ..core.bindings.reader import Reader
from ..core.bindings.rows import LEAVE, NEVER, Assumed, Default, Derived, Fixed, Key, Table, among, only, within
from ..core.bindings.spelling import DTYPE, optimizer
from ..core.format import Format, NoJobError, Reading
from ..core.keys import key_problems
from ..core.world_size import Stated, set_hardware

if TYPE_CHECKING:
    from ...job.job import Job
    from ...source.document import Document
    from ..core.format import Project
    from ..core.key_changes import Keys

NAME = "h2o_llmstudio"
UPSTREAM = "h2o_llmstudio 1.14.9"
VERSIONS = {"transformers": "4.56.1", "peft": "0.17.1"}
"""What its pyproject.toml pins."""

_OPTIMIZER = optimizer(
    own={"adamw8bit": "adamw_8bit", "sgd": "sgd_momentum"}, any_other=True,
    written={"adamw_8bit": "AdamW8bit", "adamw_torch": "AdamW", "sgd_momentum": "SGD"},
)  # fmt: skip
_DPO_LOSSES = {"DPOLoss": "dpo", "HingeLoss": "dpo", "IPOLoss": "dpo", "KTOPairLoss": "kto", "CPOLoss": "cpo",
               "SimPOLoss": "simpo"}  # fmt: skip


def read(document: Document, project: Project) -> Reading:
    """The Job of an experiment. Raises NoJobError where it is to run on the CPU."""
    reader = Reader(document, project, NAME, UPSTREAM)
    gpus = reader.keys.raw("environment.gpus")
    if gpus is not None and gpus.value == []:
        raise NoJobError(document.path, "environment.gpus is empty: it runs on the CPU")
    reader.bind(TABLE.rows)
    reader.reading.problems = key_problems(document, NAME)
    return reader.reading


def _set_objective(reader: Reader) -> None:
    kind = reader.given(TEXT, "problem_type")
    word = kind.value if kind else ""
    if word == "text_dpo_modeling":
        loss = reader.value(TEXT, "training.loss_function")
        reader.set("objective", kind, _DPO_LOSSES.get(loss, "dpo"))
    elif "classification" in word or "regression" in word:
        reader.set("objective", kind, "reward", "a head of few classes, as a reward model has")
    else:
        reader.set("objective", kind, "sft")


def _set_gpus(reader: Reader) -> None:
    gpus = reader.keys.raw("environment.gpus")
    count = len(gpus.value) if gpus and isinstance(gpus.value, list) else 0
    stated = Stated(count, gpus.entry, gpus.key, "GPUs listed") if gpus and count else None
    set_hardware(reader, reader.project, stated, sharded=False)


def _no_zero(reader: Reader) -> Any:
    zero = reader.value(FLAG, "environment.use_deepspeed") and (reader.job.hardware.gpus or 1) > 1
    return LEAVE if zero else None


def _targets(names: list[str], _job: Job) -> Any:
    return names or Unsaid.OTHER


def _target_words(targets: Any, _job: Job) -> Any:
    """An empty string is every linear layer."""
    return ",".join(targets) if isinstance(targets, list) else "" if targets == "all-linear" else Unsaid.OTHER


def _method(reading: Reading, value: str) -> Keys | None:
    if value not in ("full", "lora"):
        return None
    own = {"training.lora_r": 16} if value == "lora" and reading.job.method != "lora" else {}
    return {"training.lora": value == "lora", **own}


def _packing(_reading: Reading, value: str | None) -> Keys | None:
    word = {"bnb-nf4": "int4", "bnb-int8": "int8", None: "bfloat16"}.get(value)
    return {_BACKBONE: word} if word else None


def _stage(_reading: Reading, value: int) -> Keys | None:
    if value not in (2, 3):
        return None
    return {"environment.use_deepspeed": True, "environment.deepspeed_method": f"ZeRO{value}"}


_BACKBONE = "architecture.backbone_dtype"
_PACKED = "weights.quantization."

_WEIGHTS = (
    Key(f"{_PACKED}method", _BACKBONE, TEXT, to={"int4": "bnb-nf4", "int8": "bnb-int8"}, back=NEVER),
    Key("weights.quantization", _BACKBONE, TEXT, to=lambda _, __: Default(None)),
    *only(
        lambda job: "weights.quantization" not in job.origins,
        Fixed(f"{_PACKED}method", "bnb-nf4"),
        Key(f"{_PACKED}bits", _BACKBONE, TEXT, 4, {"int4": 4, "int8": 8}, NEVER),
        Fixed(f"{_PACKED}double_quant", False),
        Fixed("weights.dtype", Default("float16", "what it loads beside packed weights")),
    ),
    Key("weights.dtype", _BACKBONE, DTYPE, other=None, back=NEVER),
    Key(
        "precision.autocast", "environment.mixed_precision", FLAG, to={False: None}, note="mixed precision is off",
    ),
    Key("precision.autocast", "environment.mixed_precision_dtype", DTYPE, "bfloat16", other=None),
    Fixed("precision.master_weights", False),
    Fixed("precision.gradients", Derived(None, "gradients have the dtype of their weight")),
)  # fmt: skip
"""int4 is NF4 and int8 LLM.int8(), both over float16; anything else a dtype."""

_ADAPTER = within(
    "training",
    Key("method", "lora", FLAG, "lora", {True: "lora", False: "full"}, NEVER),
    *only(
        lambda job: job.method == "lora",
        Key(
            "adapter.type", "use_dora", FLAG, Derived("lora", "LoRA", "method"),
            lambda on, _: Derived("dora" if on else "lora", "LoRA", "method"),
        ),
        Key("adapter.dropout", "lora_dropout", NUMBER, 0.05),
        Key(
            "adapter.targets", "lora_target_modules", WORDS, Default("all-linear", "every linear layer but the head"),
            _targets, _target_words,
        ),
        Fixed("adapter.dtype", Default(None, "as PEFT chooses")),
    ),
    *lora(rank="lora_r", alpha="lora_alpha", r=4, cast=False),
    *TRAINABLE,
)  # fmt: skip

_ZERO = only(
    lambda job: "parallelism.zero" not in job.origins,
    *within(
        "environment",
        Key("parallelism.zero.stage", "deepspeed_method", TEXT, to=lambda word, _: 3 if word == "ZeRO3" else 2),
        Key("parallelism.zero.stage", "use_deepspeed", FLAG, to={True: 2}, back=NEVER),
        *(
            Key(f"parallelism.zero.{field}", f"deepspeed_{key}", POSITIVE, 1_000_000)
            for field, key in (
                ("reduce_bucket_size", "reduce_bucket_size"),
                ("allgather_bucket_size", "allgather_bucket_size"),
                ("prefetch_bucket_size", "stage3_prefetch_bucket_size"),
                ("param_persistence_threshold", "stage3_param_persistence_threshold"),
            )
        ),
    ),
)

TABLE = Table(
    (
        Fixed("kind", Derived("training", "an experiment")),
        packages(VERSIONS, UPSTREAM),
        Key("model", "llm_backbone", TEXT, Assumed(None, "no key names the model")),
        _set_objective,
        Fixed(
            "rl.reference_model", Derived(False, "the base model without its adapter is the reference"),
        ),
        *_WEIGHTS,
        Key(
            "attention", "training.attention_implementation", TEXT, Default("sdpa", "what Transformers picks"),
            lambda word, _: Unsaid.OTHER if word == "auto" else word, among("sdpa", "eager", "flash_attention_2"),
        ),
        Fixed("liger_kernels", False),
        Key("compile", "environment.compile_model", FLAG, default=False),
        *_ADAPTER,
        Key("micro_batch_size", "training.batch_size", POSITIVE, 2),
        Key("gradient_accumulation_steps", "training.grad_accumulation", POSITIVE, 1),
        Key("sequence_length", "tokenizer.max_length", POSITIVE, 512),
        Fixed("packing", False),
        Fixed(
            "padded",
            lambda reader: Default(
                reader.value(NUMBER, "tokenizer.padding_quantile") == 0, "padding_quantile above 0 cuts to the longest"
            ),
        ),
        Key(
            "activation_checkpointing", "architecture.gradient_checkpointing", FLAG, "full",
            {True: "full", False: "none"},
        ),
        Fixed("reentrant", False),
        Key(
            "optimizer.name", "training.optimizer", _OPTIMIZER, "adamw_torch",
            back=among("adamw_8bit", "adamw_torch", "sgd_momentum"),
        ),
        Fixed("loss.kernel", "torch"),
        Key(
            "evaluation.micro_batch_size", "prediction.batch_size_inference", POSITIVE,
            lambda reader: Derived(reader.job.micro_batch_size, "0: as in training", "micro_batch_size"),
        ),
        Fixed("evaluation.keeps_logits", Derived(False, "only losses and generated text are kept")),
        _set_gpus,
        Fixed("parallelism.tensor", 1),
        Fixed("parallelism.pipeline", 1),
        Fixed("parallelism.context", 1),
        Fixed("parallelism.fsdp", None),
        Fixed("parallelism.zero", _no_zero),
        *_ZERO,
    ),
    says={"method": _method, "weights.quantization.method": _packing, "parallelism.zero.stage": _stage},
)  # fmt: skip

FORMAT = Format.of_table(
    NAME, "H2O LLM Studio experiment", UPSTREAM, read, TABLE, "`environment.gpus`"
)  # fmt: skip
