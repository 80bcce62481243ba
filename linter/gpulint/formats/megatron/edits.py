"""Job changes in the words of Megatron-LM's options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.dotted_edits import Vocabulary, wanted_keys
from ..core.key_changes import ZERO, edits_of, spoken

if TYPE_CHECKING:
    from typing import Any

    from ...source.edit.replacement import Edit
    from ..core.format import Reading
    from ..core.key_changes import Keys

_STRATEGIES = {2: "optim_grads", 3: "optim_grads_params"}
"""ZeRO stage -> what Megatron-FSDP calls it."""

_OFFLOAD = ("optimizer-cpu-offload", "use-precision-aware-optimizer", "use-distributed-optimizer")
"""Offloaded states are those of the precision-aware optimizer."""


def _checkpointing(_reading: Reading, value: str) -> Keys | None:
    if value == "full":
        return {"recompute-granularity": "full", "recompute-method": "uniform", "recompute-num-layers": 1}
    if value == "selective":
        return {"recompute-granularity": "selective"}
    gone = dict.fromkeys(("recompute-granularity", "recompute-method", "recompute-num-layers", "recompute-activations"))
    return gone if value == "none" else None


def _zero(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """The distributed optimizer, Megatron-FSDP over it, or states in main memory, which that does not offer."""
    stage, device = changes.get(f"{ZERO}stage"), changes.get(f"{ZERO}offload_optimizer.device")
    if len(changes) > (stage is not None) + (device is not None) or ((stage or 0) > 1 and device is not None):
        return None
    if device is not None and reading.job.parallelism.fsdp is not None:
        return None
    wanted = _stage(stage) if stage is not None else {}
    if wanted is None or device not in (None, "none", "cpu"):
        return None
    if device == "cpu":
        wanted |= dict.fromkeys(_OFFLOAD, True)
    elif device == "none":
        wanted |= {"optimizer-cpu-offload": None, "optimizer-offload-fraction": None}
    return wanted


def _stage(value: int) -> Keys | None:
    if value == 1:
        return {"use-distributed-optimizer": True}
    if value not in _STRATEGIES:
        return None
    return {
        "use-distributed-optimizer": True, "use-megatron-fsdp": True,
        "data-parallel-sharding-strategy": _STRATEGIES[value],
    }  # fmt: skip


def _sharding(_reading: Reading, value: str) -> Keys | None:
    return _stage({"full_shard": 3, "shard_grad_op": 2}.get(value, 0))


def _spelled(reading: Reading, option: str) -> str:
    """The option as the file spells it: a flag, or a key of MODEL_ARGS."""
    if reading.config.root.get("MODEL_ARGS") is not None:
        return f"MODEL_ARGS.--{option}"
    written = reading.config.root.keys()
    return next((str(key) for key in written if str(key).replace("_", "-") == option), option)


VOCABULARY = Vocabulary(
    {
        "micro_batch_size": "micro-batch-size",
        "sequence_length": "seq-length",
        "parallelism.tensor": "tensor-model-parallel-size",
        "parallelism.pipeline": "pipeline-model-parallel-size",
        "parallelism.context": "context-parallel-size",
        "parallelism.expert": "expert-model-parallel-size",
        "parallelism.sequence": "sequence-parallel",
    },
    {
        "activation_checkpointing": _checkpointing,
        "parallelism.fsdp.sharding": _sharding,
    },
    total="global-batch-size",
    spelled=_spelled,
    ignored=frozenset({"checkpoint_policy"}),
    zero=_zero,
)


def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
    """The change as options."""
    wanted = wanted_keys(VOCABULARY, reading, changes)
    return spoken({key.rpartition("--")[2]: value for key, value in wanted.items()}) if wanted else None


def edits(reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:
    """The edits that make the change; None when Megatron cannot say it or the text cannot be edited safely."""
    return edits_of(reading.config, wanted_keys(VOCABULARY, reading, changes))
