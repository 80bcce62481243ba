"""ms-swift: `swift sft|pt|rlhf --flags`, and the same arguments in YAML.

Facts from ms-swift 4.6.0 (`arguments/*.py`, `trainers/arguments.py`, `rlhf_trainers/args_mixin.py`), read
statically. It builds on the Transformers Trainer and TRL, whose arguments it takes under their names
(`training_arguments.py`, `trl.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...upstream import transformers
from ...upstream.behaviour import default_of
from ..core.arguments import Arguments
from ..core.format import Format, JobBuilder, NoJobError, Reading, written_by
from ..core.keys import key_problems
from ..hf_trainer import image_inputs, trl
from ..hf_trainer.format import _set_loss as set_loss
from ..hf_trainer.training_arguments import (
    Run,
    set_checkpointing,
    set_compile,
    set_optimizer,
    set_precision,
    set_versions,
)
from .model import set_tuning, set_weights
from .parallel import set_sharding_of

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.arguments import Given
    from ..core.format import Project

NAME = "ms_swift"
UPSTREAM = "ms-swift 4.6.0"
VERSIONS = {"transformers": "5.23.0", "trl": "1.16.0", "peft": "0.21.2", "accelerate": "1.15.0", "vllm": "0.21.0"}

_ALIASES = {
    "model_name_or_path": ("model", "model_id_or_path", "model_type"),
    "dtype": ("torch_dtype",),
    "attn_implementation": ("attn_impl",),
    "lora_r": ("lora_rank",),
    "max_length": ("max_length",),
    "max_completion_length": ("max_completion_length", "response_length"),
}
"""Arguments of the Trainer, TRL and PEFT -> ms-swift's own names, former ones last."""

DEFAULTS: dict[str, Any] = {
    "bf16": True, "gradient_checkpointing": True, "reentrant": None, "optim": "adamw_torch_fused", "attention": "sdpa",
    "dtype": "checkpoint", "loss": "torch", "loss_chunk": None, "max_length": None, "lora_r": 8, "lora_alpha": 32,
    "lora_dropout": 0.05, "lora_targets": "all-linear", "prepare_kbit": False, "quant_type": "nf4",
    "double_quant": True, "num_generations": 8, "max_completion_length": 512, "vllm_mode": "colocate",
    "vllm_gpu_memory_utilization": 0.9, "grpo_beta": 0.04, "max_prompt_length": None,
}  # fmt: skip

TRAINING = frozenset({"sft", "pt", "rlhf"})
"""Its commands that train."""

_TYPES = {"dpo": "dpo", "orpo": "orpo", "simpo": "simpo", "kto": "kto", "cpo": "cpo", "rm": "reward", "ppo": "ppo",
          "grpo": "grpo", "gkd": "sft"}  # fmt: skip
SIGNS = frozenset({"tuner_type", "train_type", "rlhf_type", "sft_type"})
"""Keys that say how a model is tuned, as no other tool does."""

_OTHERS = frozenset({"stage", "finetuning_type", "template", "base_model", "model_name_or_path", "recipe"})


class SwiftArguments(Arguments):
    """Arguments under the names of the Trainer, found under ms-swift's."""

    __slots__ = ()

    def __contains__(self, name: str) -> bool:
        return any(super(SwiftArguments, self).__contains__(alias) for alias in _ALIASES.get(name, (name,)))

    def raw(self, *names: str) -> Given | None:
        """The first of `names` that the file has, whatever its value (null included)."""
        return super().raw(*(alias for name in names for alias in _ALIASES.get(name, (name,))))


def recognise(document: Document) -> bool:
    """A flat YAML file with `model` and the kind of tuning in ms-swift's words."""
    root = document.root
    keys = set(root.keys())
    model = root.get("model")
    if document.syntax not in ("yaml", "json") or keys & _OTHERS or model is None:
        return False
    return model.is_scalar and not SIGNS.isdisjoint(keys)


def read(document: Document, project: Project) -> Reading:
    """The Job of a training run. Raises NoJobError for commands that train nothing."""
    builder = JobBuilder(document, UPSTREAM)
    reading = Reading(NAME, UPSTREAM, document, builder.job)
    arguments = SwiftArguments(document.root)
    command = arguments.text("command")
    if command and command.value not in TRAINING:
        raise NoJobError(document.path, f"swift {command.value} is not a training command")
    optimizer = default_of(transformers.DEFAULTS, project.versions.get(transformers.NAME), "optim", DEFAULTS["optim"])
    run = Run(builder, arguments, project, reading, {**DEFAULTS, "optim": optimizer})
    builder.derived("kind", "training", "a training command")
    set_versions(run, VERSIONS, f"what {UPSTREAM} runs on")
    objective = set_objective(run, command)
    set_precision(run)
    set_weights(run)
    set_tuning(run)
    set_optimizer(run)
    _set_galore(run)
    set_checkpointing(run)
    set_compile(run)
    set_loss(run, _Plain, objective)  # type: ignore[arg-type]
    _set_weighed_loss(run)
    _set_rows(run)
    trl.set_rl(builder, arguments, DEFAULTS, objective)
    set_rollout(run)
    set_lengths(run, objective)
    image_inputs.at_most(run, "max_pixels")
    set_sharding_of(run)
    reading.problems = key_problems(document, NAME, known=("command", "config")) + reading.problems
    return reading


class _Plain:
    """What `set_loss` asks of a flavour."""

    defaults = DEFAULTS
    name = "ms-swift"


def set_objective(run: Run, command: Given | None) -> str:
    """Fill `objective` from the command and `rlhf_type`, and return it."""
    kind = run.arguments.text("rlhf_type")
    if kind and (command is None or command.value == "rlhf"):
        objective = _TYPES.get(kind.value, "dpo")
        run.put("objective", kind, objective)
        teacher = run.arguments.text("teacher_model")
        if teacher and kind.value == "gkd":
            run.put("rl.teacher", teacher)
    elif command:
        objective = {"pt": "pretrain", "rlhf": "dpo"}.get(command.value, "sft")
        run.put("objective", command, objective)
    else:
        objective = "sft"
        run.builder.default("objective", objective)
    task = run.arguments.text("task_type")
    if objective == "sft" and task and task.value == "seq_cls":
        objective = "classification"
        run.put("objective", task, objective)
        labels = run.arguments.integer("num_labels", least=1)
        if labels:
            run.put("labels", labels)
    return objective


def _set_galore(run: Run) -> None:
    """`use_galore` replaces the optimizer; rank 128 unless stated. `galore_optim_per_parameter` steps after the
    backward pass as one optimizer does, so gradients stay whole (optimizers/galore/utils.py GaloreOptimizerWrapper).
    """
    chosen = run.arguments.flag("use_galore")
    if not chosen or not chosen.value:
        return
    packed = run.arguments.flag("galore_quantization")
    run.put("optimizer.name", chosen, "q_galore_adamw8bit" if packed and packed.value else "galore_adamw")
    rank = run.arguments.integer("galore_rank", least=1)
    if rank:
        run.put("optimizer.rank", rank)
    else:
        run.builder.default("optimizer.rank", 128)


WEIGHED = frozenset({"agentflan", "alpha_umi", "hermes", "qwen", "react"})
"""Values of `loss_scale` with weights other than 0 and 1 (swift/loss_scale/config, 4.6)."""


def _set_weighed_loss(run: Run) -> None:
    """Losses a token, where its weight or its own formula asks for them, are computed from the logits, not by Liger.

    trainers/seq2seq_trainer.py `compute_loss`: labels are taken from the inputs, so that the model makes logits.
    """
    builder, arguments = run.builder, run.arguments
    if builder.job.loss.kernel != "liger":
        return
    scale = arguments.text("loss_scale")
    if scale and not WEIGHED.isdisjoint(scale.value.split("+")):
        run.put("loss.kernel", scale, "torch", "tokens are weighed: Liger's fused loss takes no effect")
        return
    for name in ("enable_dft_loss", "enable_channel_loss"):
        own = arguments.flag(name)
        if own and own.value:
            run.put("loss.kernel", own, "torch", "a loss for each token: Liger's fused loss takes no effect")


def _set_rows(run: Run) -> None:
    """Packing, padding, and the evaluation loop, whose batch is 1 as the training batch is.

    `padding_free` lays the rows of a batch end to end; only packing fills them to the length.
    """
    packing = run.arguments.flag("packing")
    if packing and packing.value:
        run.put("packing", packing, value=True)
    else:
        run.builder.default("packing", False)
    run.builder.default("padded", False, "rows are padded to the longest of a batch")
    strategy, split = run.arguments.text("eval_strategy"), run.arguments.number("split_dataset_ratio")
    data = run.arguments.raw("val_dataset")
    sign = next((given for given in (strategy, data, split) if given and given.value), None)
    if sign is None or (strategy and strategy.value == "no"):
        run.builder.default("evaluation.micro_batch_size", None, "no evaluation is configured")
        return
    batch = run.arguments.integer("per_device_eval_batch_size", least=1)
    if batch:
        run.put("evaluation.micro_batch_size", batch)
    else:
        run.builder.default("evaluation.micro_batch_size", 1)
    run.builder.derived("evaluation.keeps_logits", False, "of the logits only the best token is kept")
    if run.builder.job.loss.kernel == "liger":
        note = "Liger's models make the logits outside of training"
        run.builder.derived("evaluation.unfused", True, note, "loss.kernel")


def set_rollout(run: Run) -> None:
    """`sleep_level` gives the engine's share back; `offload_model` and `offload_optimizer` make room for it."""
    if run.builder.job.rl.vllm != "colocate":
        return
    level = run.arguments.integer("sleep_level", least=0)
    if level:
        run.put("rl.vllm_sleep", level, level.value > 0)
    else:
        run.builder.default("rl.vllm_sleep", False, "sleep_level 0")
    model, states = run.arguments.flag("offload_model"), run.arguments.flag("offload_optimizer")
    if model and model.value and states and states.value:
        run.put("rl.policy_offload", model)
    else:
        run.builder.default("rl.policy_offload", False)


def set_lengths(run: Run, objective: str) -> None:
    """`max_length` of a row, or of the prompt of online objectives; without it the model's own maximum cuts."""
    builder = run.builder
    length = run.arguments.integer("max_length", least=1)
    if objective in trl.ONLINE:
        if length:
            run.put("rl.prompt_length", length)
        else:
            builder.assumed("rl.prompt_length", trl.ASSUMED_PROMPT, f"not bounded; {trl.ASSUMED_PROMPT} tokens")
        total = (builder.job.rl.prompt_length or 0) + (builder.job.rl.completion_length or 0)
        builder.derived("sequence_length", total, "prompt and completion", "rl.completion_length")
    elif length:
        run.put("sequence_length", length)
    else:
        builder.assumed("sequence_length", None, "rows are cut at the model's own maximum")


describe, edits = written_by("ms_swift.edits")


FORMAT = Format(
    NAME, "ms-swift arguments", UPSTREAM, recognise, read, describe, edits, "`NPROC_PER_NODE`, `CUDA_VISIBLE_DEVICES`"
)
