"""ms-swift: `swift sft|pt|rlhf --flags`, and the same arguments in YAML.

Facts from ms-swift 4.6.0 (`arguments/*.py`, `trainers/arguments.py`, `rlhf_trainers/args_mixin.py`), read
statically. It builds on the Transformers Trainer and TRL, whose arguments it takes under their names
(`training_arguments.py`, `trl.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...upstream import transformers
from ...upstream.behaviour import default_of
from ..core.backends.fsdp import FSDP
from ..core.backends.plain import packages
from ..core.bindings.kinds import FLAG, NATURAL, NUMBER, POSITIVE, TEXT
from ..core.bindings.reader import Reader
from ..core.bindings.rows import Assumed, Default, Derived, Fixed, Key, Table, only
from ..core.format import Format, NoJobError, Reading
from ..core.key_changes import OFFLOADS, ZERO
from ..core.keys import key_problems
from ..hf_trainer import image_inputs, trl
from ..hf_trainer.format import _set_loss as set_loss
from ..hf_trainer.peft_arguments import WEIGHTS
from ..hf_trainer.trainer_reader import trainer_rows
from ..hf_trainer.training_arguments import CHECKPOINTING, COMPILE, MODEL, OPTIMIZER, PRECISION
from .arguments import SwiftArguments
from .model import ATTENTION, tuning
from .parallel import SHARDING

if TYPE_CHECKING:
    from ...job.job import Job
    from ...source.document import Document
    from ..core.format import Project
    from ..core.key_changes import Keys

NAME = "ms_swift"
UPSTREAM = "ms-swift 4.6.0"
VERSIONS = {"transformers": "5.23.0", "trl": "1.16.0", "peft": "0.21.2", "accelerate": "1.15.0", "vllm": "0.21.0"}

DEFAULTS: dict[str, Any] = {
    "bf16": True, "gradient_checkpointing": True, "reentrant": None, "optim": "adamw_torch_fused", "attention": "sdpa",
    "dtype": "checkpoint", "loss": "torch", "loss_chunk": None, "max_length": None, "lora_r": 8, "lora_alpha": 32,
    "lora_dropout": 0.05, "lora_targets": "all-linear", "prepare_kbit": False, "quant_type": "nf4",
    "double_quant": True, "num_generations": 8, "max_completion_length": 512, "vllm_mode": "colocate",
    "vllm_gpu_memory_utilization": 0.9, "grpo_beta": 0.04, "max_prompt_length": None,
}  # fmt: skip

_TRAINING = frozenset({"sft", "pt", "rlhf"})
"""Its commands that train."""

_TYPES = {"dpo": "dpo", "orpo": "orpo", "simpo": "simpo", "kto": "kto", "cpo": "cpo", "rm": "reward", "ppo": "ppo",
          "grpo": "grpo", "gkd": "sft"}  # fmt: skip


def read(document: Document, project: Project) -> Reading:
    """The Job of a training run. Raises NoJobError for commands that train nothing."""
    optimizer = default_of(transformers.DEFAULTS, project.versions.get(transformers.NAME), "optim", DEFAULTS["optim"])
    reader = reader_of(document, project, NAME, "swift", {**DEFAULTS, "optim": optimizer})
    reader.bind(TABLE.rows)
    reader.reading.problems = key_problems(document, NAME, known=("command", "config")) + reader.reading.problems
    return reader.reading


def reader_of(document: Document, project: Project, name: str, program: str, defaults: dict[str, Any]) -> Reader:
    """A Reader of a training command of `program`. Raises NoJobError for commands that train nothing."""
    reader = Reader(document, project, name, UPSTREAM, keys=SwiftArguments(document.root), defaults=defaults)
    command = reader.value(TEXT, "command", default="sft")
    if command not in _TRAINING:
        raise NoJobError(document.path, f"{program} {command} is not a training command")
    return reader


def set_objective(reader: Reader) -> None:
    """Fill `objective` from the command and `rlhf_type`."""
    command, kind = reader.given(TEXT, "command"), reader.given(TEXT, "rlhf_type")
    if kind and (command is None or command.value == "rlhf"):
        reader.set("objective", kind, _TYPES.get(kind.value, "dpo"))
        teacher = reader.given(TEXT, "teacher_model")
        if teacher and kind.value == "gkd":
            reader.set("rl.teacher", teacher)
    else:
        reader.set("objective", command, {"pt": "pretrain", "rlhf": "dpo"}.get(command.value if command else "", "sft"))
    task = reader.given(TEXT, "task_type")
    if reader.job.objective == "sft" and task and task.value == "seq_cls":
        reader.set("objective", task, "classification")
        reader.bind((Key("labels", "num_labels", POSITIVE),))


class _Plain:
    """What `set_loss` asks of a flavour."""

    defaults = DEFAULTS
    name = "ms-swift"


def _set_loss(reader: Reader) -> None:
    set_loss(reader, _Plain, str(reader.job.objective))


def _set_galore(reader: Reader) -> None:
    """`use_galore` replaces the optimizer; rank 128 unless stated. `galore_optim_per_parameter` steps after the
    backward pass as one optimizer does, so gradients stay whole (optimizers/galore/utils.py GaloreOptimizerWrapper).
    """
    chosen = reader.on("use_galore")
    if chosen:
        name = "q_galore_adamw8bit" if reader.on("galore_quantization") else "galore_adamw"
        reader.set("optimizer.name", chosen, name)
        rank = reader.given(POSITIVE, "galore_rank")
        reader.set("optimizer.rank", rank, rank.value if rank else 128)


WEIGHED = frozenset({"agentflan", "alpha_umi", "hermes", "qwen", "react"})
"""Values of `loss_scale` with weights other than 0 and 1 (swift/loss_scale/config, 4.6)."""


def _set_weighed_loss(reader: Reader) -> None:
    """Losses a token, where its weight or its own formula asks for them, are computed from the logits, not by Liger.

    trainers/seq2seq_trainer.py `compute_loss`: labels are taken from the inputs, so that the model makes logits.
    """
    if reader.job.loss.kernel != "liger":
        return
    scale, own = reader.given(TEXT, "loss_scale"), reader.on("enable_dft_loss") or reader.on("enable_channel_loss")
    if scale and not WEIGHED.isdisjoint(scale.value.split("+")):
        reader.set("loss.kernel", scale, "torch", "tokens are weighed: Liger's fused loss takes no effect")
    elif own:
        reader.set("loss.kernel", own, "torch", "a loss for each token: Liger's fused loss takes no effect")


def _set_evaluation(reader: Reader) -> None:
    """None where nothing evaluates."""
    strategy, split = reader.given(TEXT, "eval_strategy"), reader.given(NUMBER, "split_dataset_ratio")
    signs = (strategy, reader.keys.raw("val_dataset"), split)
    if not any(given and given.value for given in signs) or (strategy and strategy.value == "no"):
        reader.default("evaluation.micro_batch_size", None, "no evaluation is configured")


def _evaluates(job: Job) -> bool:
    return job.evaluation.micro_batch_size is not None


ROWS_OF_DATA = (
    Key("packing", "packing", FLAG, False, {True: True}, {True: True, False: False}),
    Fixed("padded", Default(False, "rows are padded to the longest of a batch")),
    _set_evaluation,
    Key("evaluation.micro_batch_size", "per_device_eval_batch_size", POSITIVE, 1),
    *only(
        _evaluates,
        Fixed("evaluation.keeps_logits", Derived(False, "of the logits only the best token is kept")),
        Fixed(
            "evaluation.unfused", Derived(True, "Liger's models make the logits outside of training", "loss.kernel"),
            when=lambda job: job.loss.kernel == "liger",
        ),
    ),
)  # fmt: skip
"""Packing, padding, and the evaluation loop, whose batch is 1 as the training batch is.

`padding_free` lays the rows of a batch end to end; only packing fills them to the length.
"""


def set_rl(reader: Reader) -> None:
    """What TRL's trainers do, by their defaults in ms-swift."""
    trainer = reader.beside(reader.document, reader.keys)
    trainer.defaults = DEFAULTS
    trainer.bind(trl.RL)


def _set_sleep(reader: Reader) -> None:
    """`sleep_level` gives the engine's share back."""
    level = reader.given(NATURAL, "sleep_level")
    reader.set("rl.vllm_sleep", level, bool(level and level.value), "" if level else "sleep_level 0")


def _set_offload(reader: Reader) -> None:
    """`offload_model` and `offload_optimizer` make room for the engine."""
    model = reader.on("offload_model")
    if model and reader.on("offload_optimizer"):
        reader.set("rl.policy_offload", model)


def _is_online(job: Job) -> bool:
    return job.objective in trl.ONLINE


def _total(reader: Reader) -> Derived:
    rl = reader.job.rl
    return Derived(
        (rl.prompt_length or 0) + (rl.completion_length or 0), "prompt and completion", "rl.completion_length"
    )


ROLLOUT = (
    set_rl,
    *only(
        lambda job: job.rl.vllm == "colocate",
        _set_sleep,
        _set_offload,
        Fixed("rl.policy_offload", False),
    ),
    *only(
        _is_online,
        Key(
            "rl.prompt_length", "max_length", POSITIVE,
            Assumed(trl.ASSUMED_PROMPT, f"not bounded; {trl.ASSUMED_PROMPT} tokens"),
        ),
        Fixed("sequence_length", _total),
    ),
    Key("sequence_length", "max_length", POSITIVE, Assumed(None, "rows are cut at the model's own maximum")),
)  # fmt: skip
"""`max_length` is that of a row, or of the prompt of online objectives; without it the model's own maximum cuts.
"""


def length_keys(reading: Reading, value: int) -> Keys | None:
    """`max_length`; of online objectives the prompt's, which the completion leaves."""
    rest = value - (reading.job.rl.completion_length or 0 if _is_online(reading.job) else 0)
    return {"max_length": rest} if rest > 0 else None


def _quantization_keys(_reading: Reading, value: str | None) -> Keys | None:
    bits = {"bnb-nf4": 4, "bnb-int8": 8}.get(value or "")
    return {"quant_method": "bnb", "quant_bits": bits} if bits else None


def _zero_keys(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """One of the files that ms-swift ships by name; those that offload, offload all that their stage can."""
    stage = changes.get(f"{ZERO}stage", reading.job.get(f"{ZERO}stage"))
    devices = {changes.get(path, reading.job.get(path) or "none") for path in OFFLOADS}
    if stage not in (0, 1, 2, 3) or not devices <= {"none", "cpu"} or ("cpu" in devices and stage < 2):
        return None
    return {"deepspeed": f"zero{stage}" + "_offload" * ("cpu" in devices), "fsdp": None}


def _autocast_keys(_reading: Reading, value: str | None) -> Keys | None:
    return {"bf16": value == "bfloat16", "fp16": True if value == "float16" else None}


def _sharding_keys(_reading: Reading, value: str) -> Keys | None:
    """The FSDP2 config that ms-swift ships."""
    return {"fsdp": "fsdp2", "deepspeed": None} if value == "full_shard" else None


def _loss_keys(reading: Reading, value: str) -> Keys | None:
    return {"use_liger_kernel": True} if value == "liger" and reading.job.objective in ("sft", "pretrain") else None


TABLE = Table(
    (
        Fixed("kind", Derived("training", "a training command")),
        packages(VERSIONS, UPSTREAM),
        set_objective,
        trainer_rows(*PRECISION),
        trainer_rows(*MODEL),
        trainer_rows(*WEIGHTS),
        *ATTENTION,
        *tuning(),
        trainer_rows(*OPTIMIZER),
        _set_galore,
        trainer_rows(*CHECKPOINTING),
        trainer_rows(*COMPILE),
        _set_loss,
        _set_weighed_loss,
        *ROWS_OF_DATA,
        *ROLLOUT,
        lambda reader: image_inputs.at_most(reader, "max_pixels"),
        *SHARDING,
    ),
    says={
        "activation_checkpointing": lambda _, value: (
            {"gradient_checkpointing": value == "full"} if value in ("full", "none") else None
        ),
        "adapter.r": lambda _, value: {"lora_rank": value},
        "loss.kernel": _loss_keys,
        "optimizer.name": lambda _, value: {"optim": value},
        "precision.autocast": _autocast_keys,
        f"{FSDP}sharding": _sharding_keys,
        "rl.completion_length": lambda _, value: {"max_completion_length": value},
        "rl.generations": lambda _, value: {"num_generations": value},
        "rl.policy_offload": lambda _, value: {"offload_model": value, "offload_optimizer": value},
        "rl.vllm_sleep": lambda _, value: {"sleep_level": int(value)},
        "rl.vllm_gpu_memory_utilization": lambda _, value: {"vllm_gpu_memory_utilization": value},
        "sequence_length": length_keys,
        "weights.dtype": lambda _, value: {"torch_dtype": value},
        "weights.quantization.method": _quantization_keys,
    },
    zero=_zero_keys,
)  # fmt: skip

FORMAT = Format.of_table(NAME, "ms-swift arguments", UPSTREAM, read, TABLE, "`NPROC_PER_NODE`, `CUDA_VISIBLE_DEVICES`")
