"""Batches, GPUs and sharding of ms-swift arguments."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import TYPE_CHECKING, Any

from ..core.backends.fsdp import FSDP
from ..core.bindings.kinds import POSITIVE, TEXT
from ..core.bindings.rows import Default, Derived, Fixed, Key
from ..core.references import plain_document
from ..core.world_size import set_hardware
from ..deepspeed.config import apply
from ..deepspeed.values import Reference
from ..hf_trainer.sharding import auto_values, set_deepspeed

if TYPE_CHECKING:
    from ...job.job import Job
    from ..core.bindings.reader import Reader

_BATCH = 16
"""Rows of an optimizer step that `gradient_accumulation_steps` makes up when it is not stated (`sft_args.py`)."""


def _steps(reader: Reader) -> Default:
    ranks = reader.job.hardware.gpus or 1
    rows = (reader.job.micro_batch_size or 1) * ranks
    return Default(-(-_BATCH // rows), f"{_BATCH} rows a step over {ranks} GPUs")


def _set_hardware(reader: Reader) -> None:
    sharded = bool(reader.keys.raw("deepspeed") and _deepspeed(reader)) or reader.given(TEXT, "fsdp") is not None
    set_hardware(reader, reader.project, None, sharded=sharded)


def _deepspeed(reader: Reader) -> Any:
    given = reader.keys.raw("deepspeed")
    return given if given is not None and given.value else None


def _set_deepspeed(reader: Reader) -> None:
    """`deepspeed` may be the short name of a config that ms-swift ships."""
    given = _deepspeed(reader)
    shipped = _shipped(given.value) if given and isinstance(given.value, str) else None
    if shipped is not None:
        ships = f"{reader.upstream} ships" if given.value not in _FORMER else "ms-swift 2.5.0 shipped"
        reference = Reference(given.entry, given.key, f"{given.value} as {ships} it")
        document = plain_document(shipped, given.value)
        reader.reading.problems += apply(reader, document, auto_values(reader), reference=reference)
    elif given:
        set_deepspeed(reader, given)
    else:
        reader.default("parallelism.zero", None)


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


def _set_fsdp(reader: Reader) -> None:
    """The FSDP2 config that it ships, `fsdp fsdp2`: full sharding by layer, and checkpointing by FSDP."""
    if reader.given(TEXT, "fsdp") and not _deepspeed(reader):
        reader.bind(_FSDP)


_FSDP = (
    Fixed(f"{FSDP}version", Default(2, "its fsdp2.json")),
    Fixed(f"{FSDP}sharding", "full_shard"),
    Fixed(f"{FSDP}wrap", "transformer"),
    Fixed(f"{FSDP}reshard_after_forward", True),
    Fixed(f"{FSDP}upcast_trainable", lambda reader: Default(_casts(reader.job), "as accelerate does")),
    Fixed(
        f"{FSDP}mixed_precision.param_dtype",
        lambda reader: Derived(reader.job.precision.autocast, "bf16", "precision.autocast"),
    ),
)  # fmt: skip


def _casts(job: Job) -> bool:
    return job.precision.autocast is not None


SHARDING = (
    _set_hardware,
    Key("micro_batch_size", ("per_device_train_batch_size", "batch_size"), POSITIVE, 1),
    Key("gradient_accumulation_steps", "gradient_accumulation_steps", POSITIVE, _steps),
    Fixed("parallelism.tensor", 1),
    Fixed("parallelism.pipeline", 1),
    Key("parallelism.context", "sequence_parallel_size", POSITIVE, 1),
    _set_deepspeed,
    _set_fsdp,
    Fixed("parallelism.fsdp", None),
)
"""`hardware`, batches and `parallelism`."""


@cache
def shipped_configs() -> dict[str, Any]:
    """DeepSpeed configs by short name, as `swift/config/*.json` has them."""
    with open(os.path.join(os.path.dirname(__file__), "ms_swift_shipped.json"), encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)["files"]
    return found
