"""What the arguments of `transformers.TrainingArguments` mean for a Job, for every tool that builds on the Trainer.

Facts from transformers 5.23.0 (`training_args.py`, `trainer.py`, `modeling_utils.py`), read statically. DeepSpeed and
FSDP are in `sharding.py`. Rows ask a Reader's `defaults` what an absent key means to the program that reads the file;
its `launch` is the `accelerate launch` that starts the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream import transformers, trl
from ...upstream.stack import Stack
from ..core.arguments import Given
from ..core.backends.trainer import model
from ..core.bindings.kinds import FLAG, INTEGER, NUMBER, POSITIVE, TEXT
from ..core.bindings.reader import Reader, by_program
from ..core.bindings.rows import NEVER, Default, Derived, Fixed, Key
from ..core.bindings.spelling import MIXED_PRECISION, attention

if TYPE_CHECKING:
    from collections.abc import Collection

    from ...job.job import Job
    from ..accelerate.launch import AccelerateLaunch
    from ..core.bindings.rows import Row

MODEL_KEYS = ("model_name_or_path", "model_name", "model_id")


def launch_of_run(reader: Reader) -> AccelerateLaunch | None:
    """The `accelerate launch` that starts the run."""
    launch: AccelerateLaunch | None = reader.defaults.get("launch")
    return launch


def mixed_precision(reader: Reader) -> tuple[str | None, Given | None]:
    """`bfloat16`, `float16` or None as the Trainer resolves bf16 and fp16, and the key that says so.

    TRL turns bf16 on unless it is stated or fp16 is on (`trainer/base_config.py`). Where neither is on, what
    `accelerate launch` was told holds.
    """
    bf16, fp16 = reader.given(FLAG, "bf16"), reader.given(FLAG, "fp16")
    if fp16 and fp16.value and not (bf16 and bf16.value):
        return "float16", fp16
    on, launch = (bf16.value if bf16 else reader.defaults["bf16"]), launch_of_run(reader)
    launched = launch.precision if launch is not None else None
    if launched and not on:
        return MIXED_PRECISION.read(launched.value), launched
    return ("bfloat16" if on else None), bf16


def _set_autocast(reader: Reader) -> None:
    dtype, given = mixed_precision(reader)
    reader.set("precision.autocast", given, dtype)


PRECISION: tuple[Row, ...] = (
    _set_autocast,
    Fixed("precision.master_weights", False),
    Fixed("precision.gradients", Derived(None, "gradients have the dtype of their weight")),
)
"""Autocast from bf16/fp16; no master weights and gradients in the dtype of the weight, without DeepSpeed."""


def _set_low_rank(reader: Reader) -> None:
    """The rank and layer-wise update of the low-rank optimizers, from `optim_args` and the name."""
    given, extra = reader.given(TEXT, "optim"), reader.given(TEXT, "optim_args")
    if given and given.value.endswith("_layerwise"):
        reader.set("optimizer.in_backward", given, True, "layer-wise update frees each gradient at once")
    for part in extra.value.split(",") if extra and not _is_adafactor(reader.job) else ():
        name, _, text = part.partition("=")
        rank = INTEGER.read(text.strip())
        if name.strip() == "rank" and isinstance(rank, int) and rank:
            reader.set("optimizer.rank", extra, rank)


def _is_adafactor(job: Job) -> bool:
    return job.origins["optimizer.name"].key == "adafactor"


OPTIMIZER = (
    Key("optimizer.name", "optim", TEXT),
    Key("optimizer.name", "adafactor", FLAG, to={True: "adafactor"}, back=NEVER),
    Key("optimizer.name", "use_8bit_optimizer", FLAG, by_program("optim"), {True: "adamw_8bit"}, NEVER),
    Fixed(
        "optimizer.embeddings_32bit", Default(True, "the Trainer's override for nn.Embedding"),
        when=lambda job: not _is_adafactor(job),
    ),
    _set_low_rank,
)  # fmt: skip

_CHECKPOINTING = ("activation_checkpointing", "gradient_checkpointing")
_SELECTIVE = Key(
    "activation_checkpointing", tuple(f"{key}_kwargs.selective" for key in _CHECKPOINTING), FLAG,
    to={True: "selective"}, back=NEVER,
)  # fmt: skip

CHECKPOINTING: tuple[Row, ...] = (
    Key("activation_checkpointing", "activation_offloading", FLAG, to={True: "offload"}, back=NEVER),
    lambda reader: reader.bind((_SELECTIVE,)) if reader.on(*_CHECKPOINTING) else None,
    Key(
        "activation_checkpointing", _CHECKPOINTING, FLAG,
        lambda reader: "full" if reader.defaults["gradient_checkpointing"] else "none", {True: "full", False: "none"},
    ),
    Key(  # the last name is PEFT's examples/sft/train.py's
        "reentrant", (*(f"{key}_kwargs.use_reentrant" for key in _CHECKPOINTING), "use_reentrant"), FLAG,
        by_program("reentrant"), back=NEVER,
    ),
)  # fmt: skip
"""Activation checkpointing, TRL's offload of what is kept, and reentrance."""

FUSED_EVALUATION = {row.package: row for row in (transformers.FUSED_EVALUATION, trl.FUSED_EVALUATION)}

EVALUATION = (
    Key("evaluation.micro_batch_size", ("per_device_eval_batch_size", "per_gpu_eval_batch_size"), POSITIVE, 8),
    Key("evaluation.accumulation_steps", "eval_accumulation_steps", POSITIVE, None, back=NEVER),
)


def set_evaluation(reader: Reader, *, metrics: bool = False, trainers: Collection[str] = ("transformers",)) -> None:
    """The evaluation loop: its batch is 8 when absent, whatever the training batch is; None when nothing evaluates.

    `metrics`: the program computes metrics of the best token at each place. `trainers`: whose trainer is told of Liger.
    The Trainer keeps logits only for a `compute_metrics`, which a config file cannot give; a metric to choose the best
    model by, other than a loss, says that a script around the Trainer has one.
    """
    strategy = reader.keys.raw("eval_strategy", "evaluation_strategy")
    does = strategy is not None and strategy.value not in (None, False, "no", "No", "NO", "")
    if not does and not reader.on("do_eval"):
        note = "no evaluation" if strategy else "no evaluation is configured"
        reader.set("evaluation.micro_batch_size", strategy, None, note)
        return
    reader.bind(EVALUATION)
    measured = _own_metric(reader) if tuple(trainers) == ("transformers",) else None
    if measured is not None and not metrics:
        note = f"{measured.key} is computed by the script, perhaps of the logits"
        reader.set("evaluation.keeps_logits", measured, False, note)
        reader.job.unstated.append("evaluation.keeps_logits")
    else:
        note = "of the logits only the best token is kept" if metrics else "only the loss is kept"
        reader.derived("evaluation.keeps_logits", False, note)
    _set_unfused(reader, trainers, metrics=metrics or measured is not None)


def _own_metric(reader: Reader) -> Given | None:
    """The key that names a metric which a script around the plain Trainer computes."""
    named = reader.given(TEXT, "metric_for_best_model")
    if named is None or reader.on("predict_with_generate"):
        return None
    return named if reader.job.objective in ("sft", "pretrain") and not named.value.endswith("loss") else None


def _set_unfused(reader: Reader, trainers: Collection[str], *, metrics: bool) -> None:
    """Whether an evaluation makes the logits that Liger's loss spares training."""
    job = reader.job
    if job.loss.kernel != "liger" or job.objective not in ("sft", "pretrain"):
        return
    fused = any(Stack(job).does(FUSED_EVALUATION[name]) for name in trainers)
    if metrics or not fused:
        note = "metrics are taken of the logits" if metrics else "Liger's models make the logits outside of training"
        reader.derived("evaluation.unfused", True, note, "loss.kernel")


COMPILE = (
    Key("compile", ("torch_compile_backend", "torch_compile_mode"), TEXT, to=lambda *_: True, back=NEVER),
    Key("compile", "torch_compile", FLAG, default=False, back=NEVER),
)
"""`torch_compile`, or a backend or mode for it."""

ATTENTION = (
    Key(
        "attention", ("attn_implementation", "model_init_kwargs.attn_implementation"),
        attention(refuses={"flash_attn", "te"}, written={"flex": "flex_attention"}), other=lambda written: written,
    ),
    Key(
        "attention", ("use_flash_attention_2", "use_flash_attn"), FLAG, by_program("attention"),
        {True: "flash_attention_2", False: "sdpa"}, NEVER,
    ),
)  # fmt: skip
"""The attention kernel; SDPA is what Transformers picks when the model has it."""

MODEL = (model(*MODEL_KEYS),)


def set_versions(reader: Reader, versions: dict[str, str], note: str) -> None:
    """The package versions whose behaviour is assumed."""
    reader.versions(versions, reader.project.versions, note)


def smooths(reader: Reader, objective: str) -> bool:
    """Whether labels are smoothed, which the Trainer does over logits that the model hands over without a loss.

    Neither a fused loss nor Liger's runs then, since no labels reach the model (trainer.py 5.23 `compute_loss`).
    """
    smoothing = reader.given(NUMBER, "label_smoothing_factor")
    if not smoothing or smoothing.value <= 0 or objective not in ("sft", "pretrain"):
        return False
    reader.set("loss.kernel", smoothing, "smoothed", "label smoothing needs the whole logits")
    return True
