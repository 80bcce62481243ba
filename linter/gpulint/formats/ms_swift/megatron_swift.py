"""Megatron-SWIFT: `megatron sft|pt|rlhf --flags` of ms-swift, and the same arguments in YAML.

Facts from ms-swift 4.6.0 (`megatron/arguments/*.py`, `megatron/utils/megatron_lm_utils.py`), read statically. The
model is a Transformers checkpoint that runs as Megatron's code; its length and its adapter are said in ms-swift's
words, its batches, degrees and optimizer in Megatron's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...models.resolve import is_known
from ...upstream.behaviour import default_of
from ...upstream.ms_swift import DEFAULTS as FORMER
from ..core.backends.gpus import model_ranks
from ..core.backends.megatron import (
    BACKEND,
    OPTIMIZER,
    ZERO,
    chunks,
    divides_states,
    fused_loss,
    gpus,
    layout,
    megatron_fsdp,
    mixed_precision,
    offloaded_optimizer,
    optimizer_states,
    recompute,
    recompute_keys,
    recomputed_modules,
    set_accumulation,
)
from ..core.backends.plain import size
from ..core.backends.training_loop import USUAL, runs_on
from ..core.bindings.kinds import FLAG, POSITIVE, TEXT
from ..core.bindings.rows import NEVER, Default, Derived, Fixed, Key, Table, only
from ..core.bindings.spelling import DTYPE
from ..core.format import Format, NoJobError, Reading
from ..core.keys import key_problems
from ..hf_trainer.trainer_reader import trainer_rows
from ..hf_trainer.training_arguments import MODEL
from ..megatron.model import MODULES
from . import format as ms_swift
from .model import tuning

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ...job.job import Job
    from ...source.document import Document
    from ..core.bindings.reader import Reader
    from ..core.format import Project
    from ..core.key_changes import Keys

NAME = "megatron_swift"
UPSTREAM = ms_swift.UPSTREAM
VERSIONS = {"megatron": "0.16", "transformers": "5.23.0", "peft": "0.15"}
"""The oldest that its requirements/megatron.txt takes."""


def read(document: Document, project: Project) -> Reading:
    """The Job of a training run. Raises NoJobError for commands that train nothing."""
    reader = ms_swift.reader_of(document, project, NAME, "megatron", ms_swift.DEFAULTS)
    parts = document.root.get("train")
    if parts is not None and parts.is_mapping:
        raise NoJobError(document.path, "a run on Ray, whose groups have GPUs and arguments of their own")
    reader.bind(TABLE.rows)
    reader.reading.problems = key_problems(document, NAME, known=("command", "config")) + reader.reading.problems
    return reader.reading


def _set_converted(reader: Reader) -> None:
    """A checkpoint that `swift export --to_mcore` made stands in for `model`, whose name its folder bears."""
    given = reader.given(TEXT, "mcore_model", "load") if reader.job.model is None else None
    if given and is_known(given.value, reader.project.root):
        reader.set("model", given, given.value, "the model that it was converted from, by its name")


def _set_targets(reader: Reader) -> None:
    """`target_modules` names Megatron's layers."""
    given = reader.keys.raw("target_modules")
    if reader.job.adapter is None or given is None or reader.keys.raw("target_regex") is not None:
        return
    words = given.value if isinstance(given.value, list) else str(given.value).split()
    if "all-linear" in words:
        reader.set("adapter.targets", given, "all-linear")
    elif any(word in MODULES for word in words):
        reader.set("adapter.targets", given, [name for word in words for name in MODULES.get(word, (word,))])


_BATCH = 16
"""`global_batch_size` that is not stated."""


def _set_accumulation(reader: Reader) -> None:
    set_accumulation(reader, reader.given(POSITIVE, "global_batch_size"))
    if reader.keys.raw("global_batch_size") is None:
        rows = (reader.job.micro_batch_size or 1) * model_ranks(reader.job)
        reader.default("gradient_accumulation_steps", max(1, _BATCH // rows), f"global batch {_BATCH}")


def _set_packed_length(reader: Reader) -> None:
    """`packing_length`, which `packing` fills rows to."""
    longer = reader.given(POSITIVE, "packing_length")
    if longer and reader.job.packing:
        reader.set("sequence_length", longer)


def _set_muon(reader: Reader) -> None:
    """Muon goes without the distributed optimizer."""
    if _has_muon(reader.job) and reader.job.parallelism.fsdp is None:
        given = reader.given(OPTIMIZER, "optimizer")
        reader.set(f"{ZERO}stage", given, 0, "muon goes without the distributed optimizer")


def _has_muon(job: Job) -> bool:
    return job.optimizer.name == "muon"


def _stage_keys(reading: Reading, value: int) -> Keys | None:
    return {"use_distributed_optimizer": True} if value == 1 and not _has_muon(reading.job) else None


_STAGE = Default(1, "use_distributed_optimizer true")


def _released(name: str, newest: Any) -> Callable[[Reader], Any]:
    return lambda reader: default_of(FORMER, reader.project.versions.get("ms-swift"), name, newest)


TABLE = Table(
    (
        *runs_on("megatron"),
        lambda reader: reader.versions(VERSIONS, reader.project.versions, f"what {UPSTREAM} needs"),
        Fixed("kind", Derived("training", "a training command")),
        Key("weights.dtype", "bf16", FLAG, to={True: "bfloat16"}, back=NEVER),
        Key("weights.dtype", "fp16", FLAG, to={True: "float16"}, back=NEVER),
        Key(
            "weights.dtype", "torch_dtype", DTYPE,
            Default("bfloat16", "the checkpoint's own, which is bfloat16 for most"), back=NEVER, other="bfloat16",
        ),
        *mixed_precision(),
        ms_swift.set_objective,
        trainer_rows(*MODEL),
        _set_converted,
        *tuning(usual="full"),
        _set_targets,
        *layout(),
        Fixed("parallelism.expert_tensor", Default(1, "expert_tensor_parallel_size 1")),
        gpus(),
        size("micro_batch_size", "micro_batch_size", 1),
        _set_accumulation,
        chunks("virtual_pipeline_model_parallel_size"),
        Key(
            "optimizer.name", "optimizer", OPTIMIZER,
            Default("adamw_torch_fused", "adam: the fused one of Transformer Engine or apex"),
        ),
        *megatron_fsdp("use_megatron_fsdp"),
        _set_muon,
        *divides_states("use_distributed_optimizer", _STAGE),
        *only(
            lambda job: job.parallelism.fsdp is None,
            offloaded_optimizer("optimizer_cpu_offload", "optimizer_offload_fraction", usual=1.0),
            optimizer_states(),
        ),
        fused_loss(_released("cross_entropy_loss_fusion", True), _released("cross_entropy_fusion_impl", "native")),
        *recompute(
            "recompute_granularity", default=Default("selective", "recompute_granularity selective"),
            words=("full", "selective", "none"), under=("full", "selective", "none"),
            policy=Derived("core_attention", "recompute_modules core_attn", "activation_checkpointing"),
        ),
        recomputed_modules(),
        *ms_swift.ROLLOUT,
        Key("packing", "packing", FLAG, default=False, to={True: True}, back=NEVER),
        _set_packed_length,
        Fixed("padded", Default(False, "rows are laid end to end as they are")),
        Fixed("evaluation.micro_batch_size", Default(None, "only the loss is kept")),
        Key("attention", "attention_backend", BACKEND, Default("flash_attention_2", "attention_backend flash")),
        Key("further_heads", "mtp_num_layers", POSITIVE),
        *USUAL,
    ),
    says={
        "activation_checkpointing": recompute_keys("recompute_", none="none"),
        f"{ZERO}stage": _stage_keys,
        "sequence_length": ms_swift.length_keys,
        "adapter.r": lambda _, value: {"lora_rank": value},
    },
    total="global_batch_size",
    ignored=frozenset({"checkpoint_policy"}),
)  # fmt: skip

FORMAT = Format.of_table(
    NAME, "Megatron-SWIFT arguments", UPSTREAM, read, TABLE, "`NPROC_PER_NODE`, `CUDA_VISIBLE_DEVICES`"
)
