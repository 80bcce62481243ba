"""What the arguments of `transformers.TrainingArguments` mean for a Job, for every tool that builds on the Trainer.

Facts from transformers 5.23.0 (`training_args.py`, `trainer.py`, `modeling_utils.py`), read statically. DeepSpeed and
FSDP are in `training_sharding.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...upstream import transformers, trl
from ..core.arguments import Arguments
from ..core.bindings.spelling import MIXED_PRECISION
from ..core.coercion import as_integer

if TYPE_CHECKING:
    from collections.abc import Collection

    from ..accelerate.launch import AccelerateLaunch
    from ..core.arguments import Given
    from ..core.format import JobBuilder, Project, Reading

MODEL_KEYS = ("model_name_or_path", "model_name", "model_id")

ATTENTION = {
    "flex_attention": "flex", "flash_attention_2": "flash_attention_2", "flash_attention_3": "flash_attention_3",
    "kernels-community/flash-attn": "flash_attention_2", "kernels-community/flash-attn2": "flash_attention_2",
    "kernels-community/flash-attn3": "flash_attention_3", "kernels-community/vllm-flash-attn3": "flash_attention_3",
    "fa2": "flash_attention_2", "fa3": "flash_attention_3", "sdpa": "sdpa", "eager": "eager", "disabled": "eager",
}  # fmt: skip
"""`attn_implementation` and `flash_attn` values -> the Job's attention."""


class Run(NamedTuple):
    """One file being read: where the Job goes, what the file says, and what an absent key means."""

    builder: JobBuilder
    arguments: Arguments
    project: Project
    reading: Reading
    defaults: dict[str, Any]
    launch: AccelerateLaunch | None = None

    def put(self, path: str, given: Given, value: Any = None, note: str = "") -> None:
        """Set a Job field from a key of the file; to `value` where that differs from what is written."""
        self.builder.from_entry(path, given.value if value is None else value, given.entry, given.key, note)


def set_batch(run: Run) -> None:
    """Micro batch size 8 and accumulation 1, when absent."""
    given = run.arguments.integer("per_device_train_batch_size", "per_gpu_train_batch_size", least=1)
    if given:
        run.put("micro_batch_size", given)
    elif run.arguments.blank("per_device_train_batch_size", "per_gpu_train_batch_size"):
        run.builder.assumed("micro_batch_size", None, "filled in when the job starts")
    else:
        run.builder.default("micro_batch_size", 8)
    steps = run.arguments.integer("gradient_accumulation_steps", least=1)
    if steps:
        run.put("gradient_accumulation_steps", steps)
    elif run.arguments.blank("gradient_accumulation_steps"):
        run.builder.assumed("gradient_accumulation_steps", 1, "filled in when the job starts; the default stands in")
    else:
        run.builder.default("gradient_accumulation_steps", 1)


def mixed_precision(run: Run) -> tuple[str | None, Given | None]:
    """`bfloat16`, `float16` or None as the Trainer resolves bf16 and fp16, and the key that says so.

    TRL turns bf16 on unless it is stated or fp16 is on (`trainer/base_config.py`). Where neither is on, what
    `accelerate launch` was told holds.
    """
    bf16, fp16 = run.arguments.flag("bf16"), run.arguments.flag("fp16")
    if fp16 and fp16.value and not (bf16 and bf16.value):
        return "float16", fp16
    launched = run.launch.precision if run.launch is not None else None
    if launched and not (bf16.value if bf16 else run.defaults["bf16"]):
        return MIXED_PRECISION.read(launched.value), launched
    if bf16:
        return ("bfloat16" if bf16.value else None), bf16
    return ("bfloat16" if run.defaults["bf16"] else None), None


def set_precision(run: Run) -> None:
    """Autocast from bf16/fp16; no master weights and gradients in the dtype of the weight, without DeepSpeed."""
    dtype, given = mixed_precision(run)
    if given:
        run.builder.from_entry("precision.autocast", dtype, given.entry, given.key)
    else:
        run.builder.default("precision.autocast", dtype)
    run.builder.default("precision.master_weights", False)
    run.builder.derived("precision.gradients", None, "gradients have the dtype of their weight")


def set_optimizer(run: Run) -> None:
    """`optim`, and the rank and layer-wise update of the low-rank optimizers from `optim_args` and the name."""
    given = run.arguments.text("optim")
    if run.arguments.is_on("adafactor") and not given:
        flag = run.arguments.flag("adafactor")
        assert flag is not None
        run.put("optimizer.name", flag, "adafactor")
        return
    eight_bit = run.arguments.flag("use_8bit_optimizer")
    if given:
        run.put("optimizer.name", given)
        if given.value.endswith("_layerwise"):
            run.put("optimizer.in_backward", given, value=True, note="layer-wise update frees each gradient at once")
    elif eight_bit and eight_bit.value:
        run.put("optimizer.name", eight_bit, "adamw_8bit")
    else:
        run.builder.default("optimizer.name", run.defaults["optim"])
    run.builder.default("optimizer.embeddings_32bit", True, "the Trainer's override for nn.Embedding")
    extra = run.arguments.text("optim_args")
    for part in extra.value.split(",") if extra else ():
        name, _, text = part.partition("=")
        rank = as_integer(text.strip())
        if extra and name.strip() == "rank" and rank:
            run.put("optimizer.rank", extra, rank)


def set_checkpointing(run: Run) -> None:
    """Activation checkpointing, its reentrance, and TRL's offload of what is kept."""
    arguments = run.arguments
    given = arguments.flag("activation_checkpointing", "gradient_checkpointing")
    kwargs = arguments.mapping("activation_checkpointing_kwargs", "gradient_checkpointing_kwargs")
    offload = arguments.flag("activation_offloading")
    selective = kwargs.flag("selective")
    if offload and offload.value:
        run.put("activation_checkpointing", offload, "offload")
    elif given:
        mode = "full" if given.value else "none"
        if given.value and selective and selective.value:
            run.put("activation_checkpointing", selective, "selective")
        else:
            run.put("activation_checkpointing", given, mode)
    else:
        run.builder.default("activation_checkpointing", "full" if run.defaults["gradient_checkpointing"] else "none")
    reentrant = kwargs.flag("use_reentrant") or arguments.flag("use_reentrant")  # PEFT's examples/sft/train.py
    if reentrant:
        run.put("reentrant", reentrant)
    else:
        run.builder.default("reentrant", run.defaults["reentrant"])


FUSED_EVALUATION = {row.package: row for row in (transformers.FUSED_EVALUATION, trl.FUSED_EVALUATION)}


def set_evaluation(run: Run, *, metrics: bool = False, trainers: Collection[str] = ("transformers",)) -> None:
    """The evaluation loop: its batch is 8 when absent, whatever the training batch is; None when nothing evaluates.

    `metrics`: the program computes metrics of the best token at each place. `trainers`: whose trainer is told of Liger.
    The Trainer keeps logits only for a `compute_metrics`, which a config file cannot give; a metric to choose the best
    model by, other than a loss, says that a script around the Trainer has one.
    """
    arguments = run.arguments
    strategy = arguments.raw("eval_strategy", "evaluation_strategy")
    does = strategy is not None and strategy.value not in (None, False, "no", "No", "NO", "")
    flag = arguments.flag("do_eval")
    if not does and not (flag and flag.value):
        if strategy is not None:
            run.builder.from_entry("evaluation.micro_batch_size", None, strategy.entry, strategy.key, "no evaluation")
        else:
            run.builder.default("evaluation.micro_batch_size", None, "no evaluation is configured")
        return
    given = arguments.integer("per_device_eval_batch_size", "per_gpu_eval_batch_size", least=1)
    if given:
        run.put("evaluation.micro_batch_size", given)
    else:
        run.builder.default("evaluation.micro_batch_size", 8)
    steps = arguments.integer("eval_accumulation_steps", least=1)
    if steps:
        run.put("evaluation.accumulation_steps", steps)
    else:
        run.builder.default("evaluation.accumulation_steps", None)
    measured = _own_metric(run) if tuple(trainers) == ("transformers",) else None
    if metrics:
        run.builder.derived("evaluation.keeps_logits", False, "of the logits only the best token is kept")
    elif measured is not None:
        note = f"{measured.key} is computed by the script, perhaps of the logits"
        run.builder.from_entry("evaluation.keeps_logits", False, measured.entry, measured.key, note)
        run.builder.job.unstated.append("evaluation.keeps_logits")
    else:
        run.builder.derived("evaluation.keeps_logits", False, "only the loss is kept")
    _set_unfused(run, trainers, metrics=metrics or measured is not None)


def _own_metric(run: Run) -> Given | None:
    """The key that names a metric which a script around the plain Trainer computes."""
    named = run.arguments.text("metric_for_best_model")
    generated = run.arguments.flag("predict_with_generate")
    if named is None or (generated and generated.value):
        return None
    plain = run.builder.job.objective in ("sft", "pretrain")
    return named if plain and not named.value.endswith("loss") else None


def _set_unfused(run: Run, trainers: Collection[str], *, metrics: bool) -> None:
    """Whether an evaluation makes the logits that Liger's loss spares training."""
    builder = run.builder
    if builder.job.loss.kernel != "liger" or builder.job.objective not in ("sft", "pretrain"):
        return
    versions = builder.job.versions
    fused = any(name in versions and FUSED_EVALUATION[name].at(versions[name]) for name in trainers)
    if metrics or not fused:
        note = "metrics are taken of the logits" if metrics else "Liger's models make the logits outside of training"
        builder.derived("evaluation.unfused", True, note, "loss.kernel")


def set_compile(run: Run) -> None:
    """`torch_compile`, or a backend or mode for it."""
    flag = run.arguments.flag("torch_compile")
    other = run.arguments.text("torch_compile_backend", "torch_compile_mode")
    if other:
        run.put("compile", other, value=True)
    elif flag:
        run.builder.from_entry("compile", flag.value, flag.entry, flag.key)
    else:
        run.builder.default("compile", False)


def set_attention(run: Run) -> None:
    """The attention kernel; SDPA is what Transformers picks when the model has it."""
    given = run.arguments.text("attn_implementation")
    nested = run.arguments.mapping("model_init_kwargs").text("attn_implementation")
    flag = run.arguments.flag("use_flash_attention_2", "use_flash_attn")
    chosen = given or nested
    if chosen:
        run.put("attention", chosen, ATTENTION.get(chosen.value, chosen.value))
    elif flag:
        run.put("attention", flag, "flash_attention_2" if flag.value else "sdpa")
    else:
        run.builder.default("attention", run.defaults["attention"])


def set_versions(run: Run, versions: dict[str, str], note: str) -> None:
    """The package versions whose behaviour is assumed."""
    run.builder.versions(versions, run.project.versions, note)


def set_model(run: Run) -> None:
    """The model's id or path."""
    given = run.arguments.text(*MODEL_KEYS)
    if given:
        run.put("model", given)
    elif blank := run.arguments.blank(*MODEL_KEYS):
        run.builder.assumed("model", None, f"{blank.key} is {blank.value}, which is filled in when the job starts")
    else:
        run.builder.assumed("model", None, "no key names the model")


def smooths(run: Run, objective: str) -> bool:
    """Whether labels are smoothed, which the Trainer does over logits that the model hands over without a loss.

    Neither a fused loss nor Liger's runs then, since no labels reach the model (trainer.py 5.23 `compute_loss`).
    """
    smoothing = run.arguments.number("label_smoothing_factor")
    if not smoothing or smoothing.value <= 0 or objective not in ("sft", "pretrain"):
        return False
    run.put("loss.kernel", smoothing, "smoothed", "label smoothing needs the whole logits")
    return True
