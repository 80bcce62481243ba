"""Megatron-Bridge: YAML laid over a recipe's ConfigContainer (`--config-file`), or a run's own `run_config.yaml`.

Facts from Megatron-Bridge (src/megatron/bridge/training/config.py, peft/lora.py), read statically. The recipe, which
is a Python function, names the model where the file does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.backends.megatron import (
    FIELDS_OF_ENDS,
    accumulation,
    chunks,
    divides_states,
    gpus,
    granularity,
    layout,
    mixed_precision,
    optimizer_states,
    recompute_keys,
    recomputed_modules,
)
from ..core.backends.plain import size
from ..core.backends.training_loop import USUAL, runs_on
from ..core.bindings.kinds import FLAG, NUMBER, POSITIVE, TEXT
from ..core.bindings.reader import Reader
from ..core.bindings.rows import NEVER, Default, Derived, Fixed, Key, Table, only
from ..core.format import Format, Reading
from ..core.interpolation import interpolated
from ..core.keys import key_problems
from .model import set_model, sizes_of

if TYPE_CHECKING:
    from ...job.job import Job
    from ...source.document import Document
    from ..core.format import Project
    from ..core.key_changes import Keys

NAME = "megatron_bridge"
UPSTREAM = "Megatron-Bridge 0.7.0"


def read(document: Document, project: Project) -> Reading:
    """The Job of a run; the model is not known where only the recipe names it."""
    reader = Reader(interpolated(document), project, NAME, UPSTREAM, checked=document)
    reader.bind(TABLE.rows)
    reader.reading.problems += key_problems(document, NAME)
    return reader.reading


def _set_objective(reader: Reader) -> None:
    tuned = reader.keys.raw("peft") is not None or reader.keys.raw("checkpoint.pretrained_checkpoint") is not None
    reader.derived(
        "objective", "sft" if tuned else "pretrain", "a pretrained checkpoint or an adapter" if tuned else ""
    )


def _packed(reader: Reader) -> Derived:
    tuned = reader.job.objective == "sft"
    note = "rows of their own" if tuned else "pretraining cuts rows out of a stream"
    return Derived(not tuned, note, "objective")


def _set_model(reader: Reader) -> None:
    """The sizes of a provider, which a run's own config has whole."""
    found = sizes_of(
        reader, "model", gated=bool(reader.value(FLAG, "model.gated_linear_unit")),
        tied=bool(reader.value(FLAG, "model.share_embeddings_and_output_weights")), learned=False,
        vocabulary=reader.value(POSITIVE, "model.vocab_size", default=0), dropout=0.0,
    )  # fmt: skip
    stated = found if found is not None and found.vocabulary else None
    set_model(reader, "model.num_layers", "megatron", stated, "the recipe names the model, not this file")


def _gradients(reader: Reader) -> str:
    whole = reader.value(FLAG, "ddp.grad_reduce_in_fp32", default=True)
    return "float32" if whole else str(reader.job.weights.dtype)


def _has_rank(job: Job) -> bool:
    return job.method == "lora"


def _length_keys(reading: Reading, value: int) -> Keys | None:
    """Both sections say it, and must agree."""
    beside = {"dataset.seq_length": value} if reading.config.root.get("dataset") is not None else {}
    return {"model.seq_length": value, **beside}


TABLE = Table(
    (
        *runs_on("megatron"),
        Fixed("kind", Derived("training", "a run of a recipe")),
        _set_objective,
        Key(
            "packing",
            (
                "dataset.offline_packing_specs.packed_sequence_size",
                "dataset.packed_sequence_specs.packed_sequence_size",
            ),
            POSITIVE, to=lambda _size, _job: True, back=NEVER,
        ),
        Key(
            "packing", ("dataset.enable_in_batch_packing", "dataset.pack_sequences_in_batch"), FLAG, _packed,
            {True: True}, adds=False,
        ),
        *layout("model", ends=FIELDS_OF_ENDS),
        _set_model,
        gpus(),
        size("micro_batch_size", "train.micro_batch_size"),
        size("sequence_length", ("dataset.seq_length", "dataset.sequence_length", "model.seq_length")),
        accumulation("train.global_batch_size"),
        chunks("model.virtual_pipeline_model_parallel_size"),
        *granularity("model.recompute_granularity"),
        recomputed_modules("model"),
        Key(
            "weights.dtype", "mixed_precision", TEXT, Default("bfloat16", "bf16_mixed: what the recipes ask for"),
            lambda word, _: "float16" if "fp16" in word else "bfloat16",
        ),
        *mixed_precision(_gradients),
        *divides_states(
            "ddp.use_distributed_optimizer", Default(1, "use_distributed_optimizer: what the recipes ask for")
        ),
        Fixed("optimizer.name", Default("adamw_torch_fused", "adam: the fused one of Transformer Engine")),
        optimizer_states("optimizer"),
        Key("method", "peft.dim", POSITIVE, to=lambda _rank, _job: "lora"),
        *only(
            _has_rank,
            Fixed("adapter.type", Derived("lora", "LoRA", "method")),
            Key("adapter.r", "peft.dim", POSITIVE),
            Key("adapter.alpha", "peft.alpha", NUMBER),
            Fixed(
                "adapter.targets",
                Default("all-linear", "linear_qkv, linear_proj, linear_fc1, linear_fc2: default of LoRA"),
            ),
        ),
        *USUAL,
    ),
    says={
        "sequence_length": _length_keys,
        "activation_checkpointing": recompute_keys("model.recompute_"),
    },
    total="train.global_batch_size",
    ignored=frozenset({"checkpoint_policy"}),
)  # fmt: skip

FORMAT = Format.of_table(NAME, "Megatron-Bridge overrides", UPSTREAM, read, TABLE, "not in the file: torchrun")
