"""Batches, GPUs and sharding of ms-swift arguments."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import TYPE_CHECKING, Any

from ..core.references import plain_document
from ..core.world_size import set_hardware
from ..deepspeed.config import apply
from ..deepspeed.values import Reference
from ..hf_trainer.sharding import auto_values, set_deepspeed

if TYPE_CHECKING:
    from ..hf_trainer.training_arguments import Run

BATCH = 16
"""Rows of an optimizer step that `gradient_accumulation_steps` makes up when it is not stated (`sft_args.py`)."""


def set_sharding_of(run: Run) -> None:
    """Fill `hardware`, batches and `parallelism`. `deepspeed` may be the short name of a config that ms-swift ships."""
    builder = run.builder
    deepspeed, fsdp = run.arguments.raw("deepspeed"), run.arguments.text("fsdp")
    set_hardware(builder, run.project, None, sharded=bool((deepspeed and deepspeed.value) or fsdp))
    _set_batches(run)
    for name in ("tensor", "pipeline"):
        builder.default(f"parallelism.{name}", 1)
    parallel = run.arguments.integer("sequence_parallel_size", least=1)
    if parallel:
        run.put("parallelism.context", parallel)
    else:
        builder.default("parallelism.context", 1)
    builder.default("parallelism.fsdp", None)
    if not deepspeed or not deepspeed.value:
        builder.default("parallelism.zero", None)
        if fsdp:
            _set_fsdp(run)
        return
    shipped = _shipped(deepspeed.value) if isinstance(deepspeed.value, str) else None
    if shipped is None:
        set_deepspeed(run, deepspeed)
        return
    ships = f"{builder.upstream} ships" if deepspeed.value not in _FORMER else "ms-swift 2.5.0 shipped"
    reference = Reference(deepspeed.entry, deepspeed.key, f"{deepspeed.value} as {ships} it")
    run.reading.problems += apply(
        builder, plain_document(shipped, deepspeed.value), auto_values(run), reference=reference
    )


_FORMER = {"default-zero2": "zero2", "default-zero3": "zero3"}
"""Names of ms-swift 1 and 2 (v2.5.0 `llm/utils/argument.py` `handle_deepspeed`) -> the short names of today."""


def _shipped(name: str) -> dict[str, Any] | None:
    """A DeepSpeed config that ms-swift ships; those of ms-swift 2 overlap communication and name DeepSpeed's AdamW
    (v2.5.0 `llm/ds_config/*.json`)."""
    found = shipped_configs().get(_FORMER.get(name, name))
    if found is None or name not in _FORMER:
        return found
    adam = {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}}
    return {**found, "optimizer": adam, "zero_optimization": {**found["zero_optimization"], "overlap_comm": True}}


def _set_batches(run: Run) -> None:
    builder = run.builder
    given = run.arguments.integer("per_device_train_batch_size", "batch_size", least=1)
    if given:
        run.put("micro_batch_size", given)
    else:
        builder.default("micro_batch_size", 1)
    steps = run.arguments.integer("gradient_accumulation_steps", least=1)
    ranks = builder.job.hardware.gpus or 1
    if steps:
        run.put("gradient_accumulation_steps", steps)
    else:
        rows = (builder.job.micro_batch_size or 1) * ranks
        builder.default("gradient_accumulation_steps", -(-BATCH // rows), f"{BATCH} rows a step over {ranks} GPUs")


def _set_fsdp(run: Run) -> None:
    """`fsdp fsdp2` is the FSDP2 config that it ships: full sharding by layer, and checkpointing by FSDP."""
    builder, path = run.builder, "parallelism.fsdp."
    builder.default("parallelism.zero", None)
    builder.default(f"{path}version", 2, "its fsdp2.json")
    builder.default(f"{path}sharding", "full_shard")
    builder.default(f"{path}wrap", "transformer")
    builder.default(f"{path}reshard_after_forward", True)
    builder.default(f"{path}upcast_trainable", builder.job.precision.autocast is not None, "as accelerate does")
    builder.derived(f"{path}mixed_precision.param_dtype", builder.job.precision.autocast, "bf16", "precision.autocast")


@cache
def shipped_configs() -> dict[str, Any]:
    """DeepSpeed configs by short name, as `swift/config/*.json` has them."""
    with open(os.path.join(os.path.dirname(__file__), "ms_swift_shipped.json"), encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)["files"]
    return found
