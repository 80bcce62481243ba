"""What an estimate rests on that no config says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .estimate import Assumption
from .states.quantization import named_assumption

if TYPE_CHECKING:
    from ..job.job import Job
    from ..models.model import Model

WEIGHTY = (
    "weights.dtype", "weights.quantization.double_quant", "method", "adapter.r", "adapter.targets", "adapter.dtype",
    "adapter.kernels", "precision.autocast", "precision.master_weights", "optimizer.name", "micro_batch_size",
    "sequence_length", "target_length", "packing", "activation_checkpointing", "attention",
    "without_transformer_engine", "loss.kernel", "evaluation.micro_batch_size", "parallelism.data",
    "parallelism.tensor", "parallelism.zero.stage", "parallelism.fsdp.sharding", "parallelism.fsdp.wrap",
    "parallelism.fsdp.version", "rl.vllm_gpu_memory_utilization", "rl.completion_length", "hardware.gpus",
    "versions.transformers", "versions.torch", "versions.vllm", "versions.deepspeed", "versions.unsloth",
)  # fmt: skip
"""Fields whose value moves bytes, most telling first."""


def assumptions(job: Job, model: Model, *, bounded: bool = True) -> tuple[Assumption, ...]:
    """Fields that upstream defaults or nobody set, the unknown model table, and what has no bound."""
    found: list[Assumption] = []
    if not bounded:
        missing = [name for name in ("micro_batch_size", "sequence_length") if not getattr(job, name)]
        note = "nobody states it: only weights, gradients and optimizer states are counted, a lower bound"
        found.extend(Assumption(name, "unknown", note) for name in missing)
    for path in WEIGHTY:
        origin = job.origins.get(path)
        if origin is None or origin.kind not in ("default", "assumed"):
            continue
        value = job.get(path)
        if value is None or value == []:
            continue
        written = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        found.append(Assumption(path, written, origin.note or origin.kind))
    if not model.exact:
        note = f"the architecture {model.model_type} is unknown; its tensors are taken to be llama's"
        found.append(Assumption("model", model.id, note))
    if model.namesake is not None:
        found.append(Assumption("model", model.id, model.namesake))
    named = named_assumption(job, model)
    if named is not None:
        found.append(named)
    found.extend(_optimizer(job))
    return tuple(found)


def _optimizer(job: Job) -> list[Assumption]:
    from .states.optimizer import specification

    if job.kind != "training":
        return []
    found = specification(job.optimizer.name)
    if not found.known or found.exact:
        return []
    note = f"taken for the nearest optimizer whose source was read: {found.source}"
    return [Assumption("optimizer.name", job.optimizer.name, note)]
