"""OpenRLHF commands: `openrlhf.cli.train_sft|train_dpo|train_rm|train_ppo_ray`, DeepSpeed over Hugging Face models.

Facts from OpenRLHF 0.11.2 (`cli/train_*.py`, `utils/deepspeed/`, `models/actor.py`) and, for the flags without sections
of releases up to 0.9, from 0.9.1, read statically.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...upstream import openrlhf, transformers
from ..core.format import Format, JobBuilder, Reading, written_by
from ..core.keys import key_problems
from ..core.sections import Filling, Renamed, dtype_of
from .openrlhf_parallel import set_parallelism, set_rollout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...source.document import Document
    from ..core.format import Project

NAME = "openrlhf"
UPSTREAM = "openrlhf 0.11.2"
VERSIONS = {"transformers": "5.5.0", "deepspeed": "0.18.9", "vllm": "0.21.0", "peft": "0.19.0"}

_LAST_FLAT = "0.9.10"
"""The last release whose flags had no sections: `--pretrain` is one of them."""

NAMES: dict[str, tuple[str, ...]] = {
    "model": ("actor.model_name_or_path", "model.model_name_or_path", "pretrain"),
    "rollouts": ("rollout.micro_batch_size", "micro_rollout_batch_size"),
    "micro": ("train.micro_batch_size", "micro_train_batch_size"),
    "batch": ("train.batch_size", "train_batch_size"),
    "max_len": ("data.max_len", "max_len"),
    "prompt_len": ("prompt_max_len",),
    "new_tokens": ("rollout.max_new_tokens", "generate_max_len"),
    "samples": ("rollout.n_samples_per_prompt", "n_samples_per_prompt"),
    "stage": ("ds.zero_stage", "zero_stage"),
    "adam_offload": ("ds.adam_offload", "adam_offload"),
    "dtype": ("ds.param_dtype",),
    "bf16": ("bf16",),
    "attention": ("ds.attn_implementation", "attn_implementation"),
    "flash": ("flash_attn",),
    "liger": ("ds.use_liger_kernel", "use_liger_kernel"),
    "grad_dtype": ("ds.grad_accum_dtype", "grad_accum_dtype"),
    "tensor": ("ds.tensor_parallel_size", "ds_tensor_parallel_size"),
    "ring": ("ds.ring_attn_size", "ring_attn_size"),
    "packing": ("ds.packing_samples", "packing_samples"),
    "checkpointing": ("model.gradient_checkpointing_enable", "actor.gradient_checkpointing_enable",
                      "gradient_checkpointing"),
    "reentrant": ("model.gradient_checkpointing_reentrant", "actor.gradient_checkpointing_reentrant",
                  "gradient_checkpointing_use_reentrant"),
    "rank": ("ds.lora.rank", "lora_rank"),
    "alpha": ("ds.lora.alpha", "lora_alpha"),
    "dropout": ("ds.lora.dropout", "lora_dropout"),
    "targets": ("ds.lora.target_modules", "target_modules"),
    "four_bit": ("ds.load_in_4bit", "load_in_4bit"),
    "eval": ("eval.dataset", "eval_dataset"),
    "ref_offload": ("ref.offload", "ref_offload"),
    "colocate": ("train.colocate_all", "colocate_all_models"),
    "colocate_ref": ("train.colocate_actor_ref", "colocate_actor_ref"),
    "engines": ("vllm.num_engines", "vllm_num_engines"),
    "share": ("vllm.gpu_memory_utilization", "vllm_gpu_memory_utilization"),
    "vllm_sleep": ("vllm.enable_sleep", "vllm_enable_sleep"),
    "ds_sleep": ("ds.enable_sleep", "deepspeed_enable_sleep"),
    "estimator": ("algo.advantage.estimator", "advantage_estimator"),
    "kl": ("algo.kl.init_coef", "init_kl_coef"),
    "reward": ("reward.model_name_or_path", "reward_pretrain"),
    "remote": ("reward.remote_url", "remote_rm_url"),
    "nodes": ("actor.num_nodes", "actor_num_nodes"),
    "gpus": ("actor.num_gpus_per_node", "actor_num_gpus_per_node"),
}  # fmt: skip
"""What is asked for -> the flag that says it, and the flag of releases up to 0.9."""

_OBJECTIVES = {"sft": "sft", "dpo": "dpo", "rm": "reward", "ppo_ray": "ppo", "kto": "kto"}
_PROGRAM = re.compile(r"openrlhf[./]cli[./]train_(sft|dpo|rm|ppo_ray|kto)\b")


def recognise(document: Document) -> bool:  # noqa: ARG001
    """Never: it has flags only, and the program that reads them says so."""
    return False


def read(document: Document, project: Project) -> Reading:
    """The Job of a command."""
    builder = JobBuilder(document, UPSTREAM)
    reading = Reading(NAME, UPSTREAM, document, builder.job)
    filling, values = Filling(builder), Renamed(document.root, NAMES)
    program = _program(document)
    builder.derived("kind", "training", "a training command")
    builder.derived("framework", "openrlhf", "its own loss")
    release = UPSTREAM.split()[1] if document.root.get("pretrain") is None else _LAST_FLAT
    builder.versions({"openrlhf": release, **VERSIONS}, project.versions, f"what {UPSTREAM} runs on")
    estimator = values.text("estimator")
    if program == "ppo_ray" and estimator and estimator.value != "gae":
        filling.put("objective", estimator, "rloo" if estimator.value == "rloo" else "grpo")
    else:
        builder.derived("objective", _OBJECTIVES[program], f"openrlhf.cli.train_{program}")
    model = values.text("model")
    if model:
        filling.put("model", model)
    else:
        builder.assumed("model", None, "no flag names the model")
    _set_weights(filling, values, program, project.versions)
    _set_adapter(filling, values)
    set_parallelism(filling, values, project, program)
    _set_rows(filling, values, program)
    set_rollout(filling, values, program)
    reading.problems = key_problems(document, NAME)
    return reading


def _program(document: Document) -> str:
    """Which of the programs the flags are for: the last one that is named before them."""
    before = document.text[: document.root.span.start]
    found = list(_PROGRAM.finditer(before))
    return found[-1][1] if found else "sft"


def _set_weights(filling: Filling, values: Renamed, program: str, stated: Mapping[str, str]) -> None:
    """16-bit weights with DeepSpeed's float32 master weights; 4-bit ones are NF4 with double quantisation."""
    builder = filling.builder
    dtype, switch = values.text("dtype"), values.flag("bf16")
    if dtype and dtype_of(dtype):
        filling.put("weights.dtype", dtype, dtype_of(dtype))
    elif switch:
        filling.put("weights.dtype", switch, "bfloat16" if switch.value else "float32")
    else:
        builder.default("weights.dtype", "bfloat16")
    builder.default("precision.autocast", None)
    builder.default("precision.master_weights", True, "DeepSpeed's 16-bit optimizer")
    grad = values.text("grad_dtype")
    filling.fill("precision.gradients", grad._replace(value=dtype_of(grad)) if grad else None, None, "as the weights")
    four = values.flag("four_bit")
    if four and four.value:
        filling.put("weights.quantization.method", four, "bnb-nf4")
        filling.put("weights.quantization.bits", four, 4)
        builder.default("weights.quantization.double_quant", True)
    else:
        builder.default("weights.quantization", None)
    attention, flash = values.text("attention"), values.flag("flash")
    if attention:
        filling.put("attention", attention)
    elif flash:
        filling.put("attention", flash, "flash_attention_2" if flash.value else "eager")
    else:
        builder.default("attention", *_attention(values, stated))
    filling.fill("liger_kernels", values.flag("liger"), False)
    builder.default("compile", False)
    builder.default("loss.kernel", "torch")
    builder.derived("loss.upcast", "model", "openrlhf/models/actor.py: logits become float32")
    builder.derived("loss.kept", program == "sft", "the loop of SFT names the output until the next is there")
    builder.default("optimizer.name", "fused_adam", "DeepSpeed's FusedAdam")


def _attention(values: Renamed, stated: Mapping[str, str]) -> tuple[str, str]:
    """The attention that nobody names, and why: packed rows, and releases from 0.8.10 on, take flash attention."""
    packed = values.flag("packing")
    release, asked = stated.get(NAME), openrlhf.FLASH_ASKED_FOR
    pinned = transformers.BEFORE_OPENRLHF_0_8_10.at(stated.get(transformers.NAME))
    if (asked.at(release) if release else pinned) and not (packed and packed.value):
        return "eager", f"no --flash_attn, which releases before {asked.until} ask for"
    return "flash_attention_2", ""


def _set_adapter(filling: Filling, values: Renamed) -> None:
    builder = filling.builder
    rank = values.integer("rank", least=1)
    if rank is None:
        builder.default("method", "full", "lora rank 0")
        builder.derived("adapter", None, "no adapter", "method")
        builder.default("trainable", None, "all weights")
        return
    filling.put("method", rank, "lora")
    builder.derived("adapter.type", "lora", "LoRA", "method")
    filling.put("adapter.r", rank)
    filling.fill("adapter.alpha", values.number("alpha"), 16)
    filling.fill("adapter.dropout", values.number("dropout"), 0.0)
    targets = values.words("targets")
    named = targets if targets and targets.value != ["all-linear"] else None
    filling.fill("adapter.targets", named, "all-linear")
    builder.default("adapter.modules_to_save", [])
    builder.default("adapter.prepare_kbit", False)
    builder.derived("adapter.dtype", builder.job.weights.dtype, "DeepSpeed casts it", "weights.dtype")
    builder.derived("trainable", None, "the adapter alone", "method")


def _set_rows(filling: Filling, values: Renamed, program: str) -> None:
    """`max_len` bounds prompt and answer together; up to 0.9 PPO had a bound for each."""
    builder = filling.builder
    whole = values.integer("max_len", least=1)
    prompt, new = values.integer("prompt_len", least=1), values.integer("new_tokens", least=1)
    if program == "ppo_ray" and prompt and new:
        filling.put("sequence_length", new, prompt.value + new.value, "prompt and answer")
    else:
        filling.fill("sequence_length", whole, 2048 if program in ("sft", "ppo_ray") else 512)
    filling.fill("packing", values.flag("packing"), False)
    builder.default("padded", False, "rows are padded to the longest of a batch")
    given = values.flag("checkpointing")
    mode = given._replace(value="full" if given.value else "none") if given else None
    filling.fill("activation_checkpointing", mode, "none")
    filling.fill("reentrant", values.flag("reentrant"), False)
    data = values.text("eval")
    if data and program != "ppo_ray":
        filling.put("evaluation.micro_batch_size", data, builder.job.micro_batch_size, "as in training")
        builder.derived("evaluation.keeps_logits", False, "only the loss is kept")
    elif program == "ppo_ray":
        rows = values.integer("rollouts", least=1)
        filling.fill("evaluation.micro_batch_size", rows, 8 if values.root.find("pretrain") else 1, "rows of a rollout")
        builder.derived("evaluation.keeps_logits", False, "only log-probabilities are kept")
    else:
        builder.default("evaluation.micro_batch_size", None, "no evaluation with a loss")


describe, edits = written_by("rl.openrlhf_edits")


FORMAT = Format(
    NAME,
    "OpenRLHF command",
    UPSTREAM,
    recognise,
    read,
    describe,
    edits,
    "`--actor.num_nodes` x `--actor.num_gpus_per_node`; the `deepspeed` launcher",
)
