"""AutoAWQ's table as Jobs: fused modules over 4-bit weights, `generate` by a loop of its own.

The prompt goes through `model(inputs)`: logits of every prompt token, in float32 too. The cache is allocated whole at
the start, for prompt and answer.
"""

from __future__ import annotations

import re

from gpulint.job import Inference, Job, Quantization

from .case import Case, Row, hardware, measured_bytes

NAMES = {"TinyLlama-1.1B": "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "deepseek-ai/deepseek-coder-33b": "deepseek-ai/deepseek-coder-33b-instruct"}
"""Models in the spelling of the hub."""


def case(row: Row) -> Case:
    """One line of the table."""
    name, group = re.fullmatch(r"(.+) \(AWQ w4 g(\d+)\)", row["model"]).groups()  # type: ignore[union-attr]
    job = Job(kind="inference", model=NAMES.get(name, name))
    job.weights.dtype = "float16"
    job.weights.quantization = Quantization("awq", 4, group_size=int(group), skip=SKIPPED.get(name, []))
    job.inference = Inference(
        batch_size=row["micro_batch"], prompt_length=row["seq_len"], new_tokens=row["gen_len"], full_prefill_logits=True
    )
    job.versions = {"transformers": "4.35.0"}
    hardware(job, row)
    figure = "allocated summed" if row["scope"].startswith("SUM") else "allocated"
    return Case(row["id"], row["source_group"], job, figure, measured_bytes(row), None, True, row["confidence"])


SKIPPED = {"mistralai/Mixtral-8x7B-Instruct-v0.1": ["gate"]}
"""`modules_to_not_convert` of the checkpoints."""
