"""Megatron-SWIFT: `megatron sft|pt|rlhf --flags` of ms-swift, and the same arguments in YAML.

Facts from ms-swift 4.6.0 (`megatron/arguments/*.py`, `megatron/utils/megatron_lm_utils.py`), read statically. The
model is a Transformers checkpoint that runs as Megatron's code; its length and its adapter are said in ms-swift's
words, its batches, degrees and optimizer in Megatron's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream.behaviour import default_of
from ...upstream.ms_swift import DEFAULTS as FORMER
from ..core.format import Format, NoJobError, Reading, written_by
from ..core.keys import key_problems
from ..core.native import NativeConfig
from ..hf_trainer import trl
from ..hf_trainer.training_arguments import Run
from ..megatron.model import MODULES
from ..megatron.plan import (
    note_modules,
    set_accumulation,
    set_chunks,
    set_degrees,
    set_fusion,
    set_gpus,
    set_sixteen_bits,
    set_states,
)
from . import format as ms_swift
from .model import set_model_and_adapter

if TYPE_CHECKING:
    from ...source.document import Document
    from ...upstream.behaviour import default_of
from ..core.format import Project

NAME = "megatron_swift"
UPSTREAM = ms_swift.UPSTREAM
VERSIONS = {"megatron": "0.16", "transformers": "5.23.0", "peft": "0.15"}
"""The oldest that its requirements/megatron.txt takes."""

_SIGNS = frozenset({"micro_batch_size", "global_batch_size", "tensor_model_parallel_size", "recompute_granularity"})
_DTYPES = {"bfloat16": "bfloat16", "float16": "float16", "float32": "float32"}
_OPTIMIZERS = {"adam": "adamw_torch_fused", "sgd": "sgd", "muon": "muon", "dist_muon": "muon"}
_STRATEGIES = {"no_shard": "no_shard", "optim_grads": "shard_grad_op", "optim_grads_params": "full_shard"}


def recognise(document: Document) -> bool:
    """A flat YAML file with `model`, an argument of Megatron's, and the kind of tuning in ms-swift's words."""
    root = document.root
    model = root.get("model")
    if document.syntax not in ("yaml", "json") or model is None or not model.is_scalar:
        return False
    keys = set(root.keys())
    return len(_SIGNS & keys) >= 2 and not keys.isdisjoint({*ms_swift.SIGNS, "dataset", "mcore_model"})


def read(document: Document, project: Project) -> Reading:
    """The Job of a training run. Raises NoJobError for commands that train nothing."""
    config = NativeConfig(NAME, UPSTREAM, document, project, "megatron")
    builder, reading = config.builder, config.reading
    builder.default("versions", dict(VERSIONS), f"what {UPSTREAM} needs")
    builder.versions({}, project.versions, f"what {UPSTREAM} needs")
    arguments = ms_swift.SwiftArguments(document.root)
    command = arguments.text("command")
    if command and command.value not in ms_swift.TRAINING:
        raise NoJobError(document.path, f"megatron {command.value} is not a training command")
    parts = document.root.get("train")
    if parts is not None and parts.is_mapping:
        raise NoJobError(document.path, "a run on Ray, whose groups have GPUs and arguments of their own")
    run = Run(builder, arguments, project, reading, ms_swift.DEFAULTS)
    builder.derived("kind", "training", "a training command")
    objective = ms_swift.set_objective(run, command)
    set_model_and_adapter(run, usual="full")
    _set_targets(config)
    replica = set_degrees(config, config.keys)
    ranks = set_gpus(config, replica, None)
    config.count("micro_batch_size", config.keys.integer("micro_batch_size", least=1), 1)
    set_accumulation(config, config.keys.integer("global_batch_size", least=1), ranks)
    if "global_batch_size" not in config.keys:
        rows = (builder.job.micro_batch_size or 1) * ranks
        builder.default("gradient_accumulation_steps", max(1, BATCH // rows), f"global batch {BATCH}")
    if builder.job.parallelism.expert_tensor is None:
        builder.default("parallelism.expert_tensor", 1, "expert_tensor_parallel_size 1")
    chunks = config.keys.integer("virtual_pipeline_model_parallel_size", least=1)
    set_chunks(config, chunks, chunks.value if chunks else 1)
    _set_precision(config)
    _set_optimizer(config)
    version = project.versions.get("ms-swift")
    usual, form = (
        default_of(FORMER, version, name, newest)
        for name, newest in (("cross_entropy_loss_fusion", True), ("cross_entropy_fusion_impl", "native"))
    )
    set_fusion(config, config.keys, usual=usual, form=form)
    _set_recomputation(config)
    trl.set_rl(builder, arguments, ms_swift.DEFAULTS, objective)
    ms_swift.set_rollout(run)
    ms_swift.set_lengths(run, objective)
    _set_rows(config)
    heads = config.keys.integer("mtp_num_layers", least=1)
    if heads:
        config.put("further_heads", heads)
    config.fill()
    reading.problems = key_problems(document, NAME, known=("command", "config")) + reading.problems
    return reading


BATCH = 16
"""`global_batch_size` that is not stated."""


def _set_targets(config: NativeConfig) -> None:
    """`target_modules` names Megatron's layers."""
    given = config.keys.raw("target_modules")
    if config.builder.job.adapter is None or given is None or config.keys.raw("target_regex") is not None:
        return
    words = given.value if isinstance(given.value, list) else str(given.value).split()
    if "all-linear" in words:
        config.put("adapter.targets", given, "all-linear")
    elif any(word in MODULES for word in words):
        config.put("adapter.targets", given, [name for word in words for name in MODULES.get(word, (word,))])


def _set_rows(config: NativeConfig) -> None:
    """Rows are laid end to end without padding, as long as the data has them; `packing` fills them to the length."""
    keys, builder = config.keys, config.builder
    packing = keys.flag("packing")
    if packing and packing.value:
        config.put("packing", packing)
        longer = keys.integer("packing_length", least=1)
        if longer:
            config.put("sequence_length", longer)
    else:
        builder.default("packing", False)
    builder.default("padded", False, "rows are laid end to end as they are")
    builder.default("evaluation.micro_batch_size", None, "only the loss is kept")
    backend = keys.text("attention_backend")
    if backend and backend.value in ("unfused", "local"):
        config.put("attention", backend, "eager")
    elif backend:
        config.put("attention", backend, "flash_attention_2")
    else:
        builder.default("attention", "flash_attention_2", "attention_backend flash")


def _set_precision(config: NativeConfig) -> None:
    """16-bit weights unless told otherwise; bf16 adds gradients up in float32 unless `main_grads_dtype` says bf16."""
    keys, builder = config.keys, config.builder
    given = next((item for name in ("bf16", "fp16") if (item := keys.flag(name)) and item.value), None)
    stated = keys.text("torch_dtype")
    word = {"bf16": "bfloat16", "fp16": "float16"}[given.key] if given else stated.value if stated else ""
    dtype = _DTYPES.get(word.removeprefix("torch."), "bfloat16")
    reduced = keys.text("main_grads_dtype")
    whole = "float32" if dtype == "bfloat16" or keys.is_on("accumulate_allreduce_grads_in_fp32") else dtype
    gradients = "bfloat16" if reduced and reduced.value == "bf16" else whole
    said = given or stated
    if dtype == "float32" and said:
        config.put("weights.dtype", said, dtype)
    elif said:
        set_sixteen_bits(config, said, dtype, gradients)
    else:
        builder.default("weights.dtype", dtype, "the checkpoint's own, which is bfloat16 for most")
        builder.default("precision.master_weights", True, "Megatron keeps fp32 main parameters")
        builder.default("precision.gradients", gradients, "the dtype of Megatron's gradient buffer")
        builder.default("precision.autocast", None)


def _set_optimizer(config: NativeConfig) -> None:
    """The distributed optimizer is on, but under muon; Megatron-FSDP divides more, by its strategy."""
    keys, builder = config.keys, config.builder
    given = keys.text("optimizer")
    if given and given.value in _OPTIMIZERS:
        config.put("optimizer.name", given, _OPTIMIZERS[given.value])
    else:
        builder.default("optimizer.name", "adamw_torch_fused", "adam: the fused one of Transformer Engine or apex")
    fsdp = keys.flag("use_megatron_fsdp")
    if fsdp and fsdp.value:
        config.put("parallelism.fsdp.version", fsdp, 2)
        builder.derived("parallelism.fsdp.wrap", "transformer", "one unit a layer", "parallelism.fsdp.version")
        strategy = keys.text("data_parallel_sharding_strategy")
        if strategy and strategy.value in _STRATEGIES:
            config.put("parallelism.fsdp.sharding", strategy, _STRATEGIES[strategy.value])
        return
    distributed = keys.flag("use_distributed_optimizer")
    if given and "muon" in given.value:
        config.put("parallelism.zero.stage", given, 0, "muon goes without the distributed optimizer")
    elif distributed:
        config.put("parallelism.zero.stage", distributed, int(bool(distributed.value)), "states divided like ZeRO-1")
    else:
        builder.default("parallelism.zero.stage", 1, "use_distributed_optimizer true")
    builder.derived("parallelism.zero.library", "megatron", "Megatron's gradient buffer", "parallelism.zero.stage")
    offload, share = keys.flag("optimizer_cpu_offload"), keys.number("optimizer_offload_fraction")
    if offload and offload.value and (share is None or share.value > 0):
        config.put("parallelism.zero.offload_optimizer.device", offload, "cpu")
        if share:
            config.put("parallelism.zero.offload_optimizer.ratio", share, float(min(1, share.value)))
    set_states(config, keys)


def _set_recomputation(config: NativeConfig) -> None:
    """`selective` makes the inside of attention again by default."""
    given = config.keys.text("recompute_granularity")
    if given and given.value in ("full", "selective", "none"):
        config.put("activation_checkpointing", given)
    else:
        config.builder.default("activation_checkpointing", "selective", "recompute_granularity selective")
    note = "recompute_modules core_attn"
    config.builder.derived("checkpoint_policy", "core_attention", note, "activation_checkpointing")
    note_modules(config, config.keys)


describe, edits = written_by("ms_swift.megatron_swift_edits")


FORMAT = Format(
    NAME, "Megatron-SWIFT arguments", UPSTREAM, recognise, read, describe, edits,
    "`NPROC_PER_NODE`, `CUDA_VISIBLE_DEVICES`",
)  # fmt: skip
