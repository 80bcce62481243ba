"""OpenRLHF commands: `openrlhf.cli.train_sft|train_dpo|train_rm|train_ppo_ray`, DeepSpeed over Hugging Face models.

Facts from OpenRLHF 0.11.2 (`cli/train_*.py`, `utils/deepspeed/`, `models/actor.py`) and, for the flags without sections
of releases up to 0.9, from 0.9.1, read statically.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...upstream import transformers
from ...upstream.rl import openrlhf
from ..core.backends.lora import TRAINABLE, by_rank, lora
from ..core.bindings.kinds import FLAG, POSITIVE, TEXT
from ..core.bindings.reader import Reader
from ..core.bindings.rows import NEVER, Assumed, Default, Derived, Fixed, Key, Table, only
from ..core.bindings.spelling import DTYPE
from ..core.format import Format, Reading
from ..core.keys import key_problems
from .openrlhf_parallel import PARALLEL, PROGRAMS, ROLLOUT, is_online

if TYPE_CHECKING:
    from ...job.job import Job
    from ...source.document import Document
    from ..core.format import Project

NAME = "openrlhf"
UPSTREAM = "openrlhf 0.11.2"
VERSIONS = {"transformers": "5.5.0", "deepspeed": "0.18.9", "vllm": "0.21.0", "peft": "0.19.0"}

_LAST_FLAT = "0.9.10"
"""The last release whose flags had no sections: `--pretrain` is one of them."""

_PROGRAM = re.compile(r"openrlhf[./]cli[./]train_(sft|dpo|rm|ppo_ray|kto)\b")
_PACKING = ("ds.packing_samples", "packing_samples")


def read(document: Document, project: Project) -> Reading:
    """The Job of a command."""
    reader = Reader(document, project, NAME, UPSTREAM)
    release = UPSTREAM.split()[1] if document.root.get("pretrain") is None else _LAST_FLAT
    reader.versions({"openrlhf": release, **VERSIONS}, project.versions, f"what {UPSTREAM} runs on")
    reader.bind(TABLE.rows)
    reader.reading.problems = key_problems(document, NAME)
    return reader.reading


def _set_objective(reader: Reader) -> None:
    """By the program, the last one that is named before the flags; PPO's trains with other estimators, too."""
    document = reader.document
    found = _PROGRAM.findall(document.text[: document.root.span.start])
    program = found[-1] if found else "sft"
    estimator = reader.given(TEXT, "algo.advantage.estimator", "advantage_estimator")
    if program == "ppo_ray" and estimator and estimator.value != "gae":
        reader.set("objective", estimator, "rloo" if estimator.value == "rloo" else "grpo")
    else:
        names = {name: objective for objective, name in PROGRAMS.items()}
        reader.derived("objective", names.get(program, "ppo"), f"openrlhf.cli.train_{program}")


def _attention(reader: Reader) -> Default:
    """The attention that nobody names: packed rows, and releases from 0.8.10 on, take flash attention."""
    stated, asked = reader.project.versions, openrlhf.FLASH_ASKED_FOR
    release = stated.get(NAME)
    pinned = transformers.BEFORE_OPENRLHF_0_8_10.at(stated.get(transformers.NAME))
    if (asked.at(release) if release else pinned) and not reader.value(FLAG, *_PACKING, default=False):
        return Default("eager", f"no --flash_attn, which releases before {asked.until} ask for")
    return Default("flash_attention_2")


def _set_length(reader: Reader) -> None:
    """Up to 0.9 PPO had a bound for the prompt and one for the answer."""
    prompt = reader.given(POSITIVE, "prompt_max_len")
    new = reader.given(POSITIVE, "rollout.max_new_tokens", "generate_max_len")
    if is_online(reader.job) and prompt and new:
        reader.set("sequence_length", new, prompt.value + new.value, "prompt and answer")


def _is_quantized(job: Job) -> bool:
    return job.weights.quantization is not None


_FOUR_BIT = ("ds.load_in_4bit", "load_in_4bit")

_WEIGHTS = (
    Key("weights.dtype", "ds.param_dtype", DTYPE, back=NEVER),
    Key("weights.dtype", "bf16", FLAG, "bfloat16", {True: "bfloat16", False: "float32"}, NEVER),
    Fixed("precision.autocast", None),
    Fixed("precision.master_weights", Default(True, "DeepSpeed's 16-bit optimizer")),
    Key(
        "precision.gradients", ("ds.grad_accum_dtype", "grad_accum_dtype"), DTYPE, Default(None, "as the weights"),
        other=None,
    ),
    Key("weights.quantization.method", _FOUR_BIT, FLAG, to={True: "bnb-nf4"}, back=NEVER),
    Key("weights.quantization.bits", _FOUR_BIT, FLAG, to={True: 4}, back=NEVER),
    Fixed("weights.quantization.double_quant", True, when=_is_quantized),
    Fixed("weights.quantization", None, when=lambda job: not _is_quantized(job)),
    Key("attention", ("ds.attn_implementation", "attn_implementation"), TEXT, back=NEVER),
    Key("attention", "flash_attn", FLAG, _attention, {True: "flash_attention_2", False: "eager"}, NEVER),
    Key("liger_kernels", ("ds.use_liger_kernel", "use_liger_kernel"), FLAG, default=False),
    Fixed("compile", False),
    Fixed("loss.kernel", "torch"),
    Fixed("loss.upcast", Derived("model", "openrlhf/models/actor.py: logits become float32")),
    Fixed("loss.kept", lambda reader: Derived(
        reader.job.objective == "sft", "the loop of SFT names the output until the next is there")),
    Fixed("optimizer.name", Default("fused_adam", "DeepSpeed's FusedAdam")),
)  # fmt: skip
"""16-bit weights with DeepSpeed's float32 master weights; 4-bit ones are NF4 with double quantisation."""

_RANK = ("ds.lora.rank", "lora_rank")

_ADAPTER = (
    by_rank(_RANK, "lora rank 0", usual=16),
    *TRAINABLE,
    Fixed(
        "adapter.dtype", lambda reader: Derived(reader.job.weights.dtype, "DeepSpeed casts it", "weights.dtype"),
        when=lambda job: job.method == "lora",
    ),
    *lora(
        rank=_RANK, alpha=("ds.lora.alpha", "lora_alpha"), dropout=("ds.lora.dropout", "lora_dropout"),
        targets=("ds.lora.target_modules", "target_modules"),
    ),
)  # fmt: skip

_ROWS = (
    _set_length,
    Key(
        "sequence_length", ("data.max_len", "max_len"), POSITIVE,
        lambda reader: 2048 if reader.job.objective == "sft" or is_online(reader.job) else 512,
    ),
    Key("packing", _PACKING, FLAG, default=False),
    Fixed("padded", Default(False, "rows are padded to the longest of a batch")),
    Key(
        "activation_checkpointing",
        ("model.gradient_checkpointing_enable", "actor.gradient_checkpointing_enable", "gradient_checkpointing"),
        FLAG, "none", {True: "full", False: "none"},
    ),
    Key(
        "reentrant",
        ("model.gradient_checkpointing_reentrant", "actor.gradient_checkpointing_reentrant",
         "gradient_checkpointing_use_reentrant"),
        FLAG, default=False,
    ),
    *only(
        is_online,
        Key(
            "evaluation.micro_batch_size", ("rollout.micro_batch_size", "micro_rollout_batch_size"), POSITIVE,
            lambda reader: Default(8 if reader.document.root.get("pretrain") else 1, "rows of a rollout"),
        ),
        Fixed("evaluation.keeps_logits", Derived(False, "only log-probabilities are kept")),
    ),
    Key(
        "evaluation.micro_batch_size", ("eval.dataset", "eval_dataset"), TEXT,
        Default(None, "no evaluation with a loss"), lambda _, job: job.micro_batch_size, NEVER, note="as in training",
    ),
    Fixed(
        "evaluation.keeps_logits", Derived(False, "only the loss is kept"),
        when=lambda job: job.evaluation.micro_batch_size is not None,
    ),
)  # fmt: skip
"""`max_len` bounds prompt and answer together."""


def _spelled(reading: Reading, key: str) -> str:
    """A flag in the spelling of the command's release; the models' flags of PPO stand below `actor`."""
    root = reading.config.root
    if root.find(key) is not None:
        return key
    if not any(entry.value.is_mapping for entry in root.entries()):
        return next((row.names[-1] for row in TABLE.key_rows() if key in row.names), key)
    return key.replace("model.", "actor.", 1) if key.startswith("model.") and root.entry("actor") else key


TABLE = Table(
    (
        Fixed("kind", Derived("training", "a training command")),
        Fixed("framework", Derived("openrlhf", "its own loss")),
        _set_objective,
        Key(
            "model", ("actor.model_name_or_path", "model.model_name_or_path", "pretrain"), TEXT,
            Assumed(None, "no flag names the model"),
        ),
        *_WEIGHTS,
        *_ADAPTER,
        *PARALLEL,
        *_ROWS,
        *ROLLOUT,
    ),
    spelled=_spelled,
)  # fmt: skip

FORMAT = Format.of_table(
    NAME, "OpenRLHF command", UPSTREAM, read, TABLE,
    "`--actor.num_nodes` x `--actor.num_gpus_per_node`; the `deepspeed` launcher",
)  # fmt: skip
