"""Points of the memory oracle as Jobs: what `../shared/data/oracle.json` calls them, in the words of a Job.

Each row holds the point (`point`), the model's config.json fields (`config`) and what the real libraries allocated.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpulint.job.job import Adapter, Inference, Job, Quantization

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "oracle.json"

DTYPES: dict[str, Any] = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
VERSIONS = {"torch": "2.13.0", "transformers": "5.23.0", "peft": "0.21.2", "bitsandbytes": "0.50.2"}
"""The software that the oracle ran."""


def rows(path: Path = SHARED) -> list[dict[str, Any]]:
    """All rows of an oracle file."""
    loaded: list[dict[str, Any]] = json.loads(path.read_text())
    return loaded


def job_of(row: dict[str, Any]) -> Job:
    """The Job that a row ran: one GPU, no framework around it."""
    point = row["point"]
    job = Job(model=row["config"], versions=dict(VERSIONS), attention=ATTENTION.get(point["attn"], point["attn"]))
    job.weights.dtype = DTYPES[_weights(point)]
    if point["precision"].endswith("-amp"):
        job.precision.autocast = DTYPES[point["precision"].removesuffix("-amp")]
    if point.get("mode") == "infer":
        job.kind = "inference"
        job.inference = Inference(
            batch_size=point["batch"],
            prompt_length=point["seq"],
            new_tokens=2,
            full_prefill_logits=bool(point.get("full_logits", False)),
        )
        return job
    job.micro_batch_size, job.sequence_length = point["batch"], point["seq"]
    job.gradient_accumulation_steps = point.get("grad_accum", 1)
    job.activation_checkpointing = point.get("checkpointing", "none")
    job.reentrant = point.get("reentrant")
    job.padded = point.get("attention_mask") == "padded"
    job.optimizer.name = point.get("optim", "adamw_torch_fused")
    job.loss.kept = "step" if point.get("loop") == "naive" else False
    if point.get("liger"):
        job.loss.kernel, job.liger_kernels = "liger", True
    if point.get("method", "full") != "full":
        job.method, job.adapter = "lora", _adapter(point)
    if point.get("method") == "qlora":
        job.weights.quantization = Quantization("bnb-nf4", 4, double_quant=True)
    return job


ATTENTION = {"fa2": "flash_attention_2"}


def _weights(point: dict[str, Any]) -> str:
    """The oracle's default: fp32 masters under autocast for full training, 16 bits for everything else."""
    if point.get("param_dtype"):
        return str(point["param_dtype"])
    if point["precision"] == "bf16":
        return "bf16"
    full = point.get("method", "full") == "full"
    return "fp32" if full or point["precision"] == "fp32" else "bf16"


def _adapter(point: dict[str, Any]) -> Adapter:
    targets = point.get("lora_targets", "q_proj,v_proj")
    return Adapter(
        "lora",
        point.get("lora_r", 16),
        alpha=2.0 * point.get("lora_r", 16),
        dropout=point.get("lora_dropout", 0.0),
        targets=targets if targets == "all-linear" else targets.split(","),
        prepare_kbit=bool(point.get("kbit_prepare", False)),
    )
