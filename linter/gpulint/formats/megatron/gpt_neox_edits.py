"""Job changes in the words of GPT-NeoX, spelled with the dashes that the file gives its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.dotted_edits import Vocabulary, said_in
from ..core.key_changes import OFFLOADS, ZERO

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.format import Reading
    from ..core.key_changes import Keys


def _checkpointing(_reading: Reading, value: str) -> Keys | None:
    if value not in ("none", "full", "offload"):
        return None
    return {"checkpoint_activations": value != "none", "checkpoint_in_cpu": True if value == "offload" else None}


def _optimizer(reading: Reading, value: str) -> Keys | None:
    """`use_bnb_optimizer` puts bitsandbytes' Adam8bit in the place of `Adam`."""
    kind = reading.config.root.find("optimizer.type")
    adam = kind is None or str(kind.value.value).lower() == "adam"
    return {"use_bnb_optimizer": True} if value == "adamw_8bit" and adam else None


def _offload(section: str) -> Callable[[Reading, str], Keys | None]:
    def say(reading: Reading, value: str) -> Keys | None:
        key = f"zero_optimization.{section}"
        if value == "none":
            return {key: None}
        held = reading.config.root.find(key)
        if held is not None and held.value.is_mapping:
            return {f"{key}.device": value}
        return {key: {"device": value, "pin_memory": True}}

    return say


def _stage(reading: Reading, value: int) -> Keys | None:
    """Stages above 1 do not go with pipelines."""
    fits = value < 2 or reading.job.parallelism.pipeline <= 1
    return {"zero_optimization.stage": value} if fits else None


def _spelled(reading: Reading, key: str) -> str:
    """The key with the dashes that the file gives it, or gives most of its keys."""
    written = [str(name) for name in reading.config.root.keys()]  # noqa: SIM118
    head, dot, tail = key.partition(".")
    same = next((name for name in written if name.replace("-", "_") == head), None)
    dashes = sum("-" in name for name in written) > sum("_" in name for name in written)
    return (same or (head.replace("_", "-") if dashes else head)) + dot + tail


VOCABULARY = Vocabulary(
    {
        "micro_batch_size": "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps": "gradient_accumulation_steps",
        "sequence_length": "seq_length",
        "parallelism.tensor": "model_parallel_size",
        "parallelism.pipeline": "pipe_parallel_size",
        "parallelism.sequence": "sequence_parallel",
    },
    {
        "activation_checkpointing": _checkpointing,
        "optimizer.name": _optimizer,
        f"{ZERO}stage": _stage,
        **{path: _offload(section) for path, section in OFFLOADS.items()},
    },
    spelled=_spelled,
)

describe, edits = said_in(VOCABULARY)
