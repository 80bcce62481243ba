"""The hardware table of LLaMA-Factory's README, by its column for any size: x billion parameters.

  full, bf16 or fp16 (autocast)   18 x GB
  full, pure_bf16                  8 x GB
  LoRA, freeze, GaLore, 16-bit     2 x GB
  QLoRA 8-bit   x GB;   4-bit   x / 2 GB;   2-bit   x / 4 GB
No batch size, length or number of GPUs: one GPU is taken.
Source: hiyouga/LLaMA-Factory README.md, Hardware Requirement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .question import Question

QUANTISED = {8: 1.0, 4: 0.5, 2: 0.25}
"""Bytes a parameter by bits of the base weights."""


def answer(q: Question) -> float:
    """Bytes on one GPU. Raises Unsaid."""
    job = q.job
    q.need(job.kind == "training", "inference")
    q.whole_model()
    return multiplier(q) * q.parameters


def multiplier(q: Question) -> float:
    """The table's GB per billion parameters. Raises Unsaid."""
    job = q.job
    if job.weights.quantization is not None:
        q.need(job.method == "lora", "quantised weights without LoRA")
        bits = int(q.bits)
        q.need(bits in QUANTISED, f"{bits}-bit weights")
        return QUANTISED[bits]
    if job.method in ("lora", "freeze") or job.optimizer.name.startswith(("galore", "apollo")):
        q.need(q.stored != "float32", "float32 base weights")
        return 2.0
    q.full_training()
    if job.precision.autocast or job.precision.master_weights:
        return 18.0
    q.need(q.stored != "float32", "float32 without autocast")
    return 8.0
