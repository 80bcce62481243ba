"""Generation of a source that no reader here knows, by the columns of its rows alone.

Of training no columns say enough: what the loop of a framework keeps is in none of them.
"""

from __future__ import annotations

import re
from typing import Any

from gpulint.job.job import Inference, Job, Quantization

from . import vllm_rows
from .case import Case, Inexpressible, Row, hardware, measured_bytes, versions
from .figures import COUNTERS

DTYPES: dict[str, Any] = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp16": "float16",
    "float16": "float16",
    "fp32": "float32",
}

GROUP = 128
"""Weights that share a scale in GPTQ and AWQ checkpoints (Qwen's quantization_config; the tools' default)."""

ATTENTION = (("flash", "flash_attention_2"), ("sdpa", "sdpa"), ("eager", "eager"))


def case(row: Row) -> Case:
    """One row. Raises Inexpressible."""
    category, framework = row["category"], (row["framework"] or "").lower()
    if "vllm" in framework and category.startswith("inference"):
        return vllm_rows.case(row)
    if category != "inference_total":
        raise Inexpressible(f"no reader knows the source, and its columns do not say a run of {row['framework']}")
    figure = COUNTERS.get(row["counter_class"])
    if figure is None:
        raise Inexpressible(f"the counter is {row['counter_class']}")
    if (row["scope"] or "").startswith("SUM") and (row["n_gpus"] or 1) > 1:
        figure = f"{figure} summed"
    job = generation(row)
    found = Case(row["id"], row["source_group"], hardware(job, row), figure, measured_bytes(row))
    return found._replace(confidence=row["confidence"], counted=row["counter_class"] != "unstated")


def generation(row: Row) -> Job:
    """A prompt and its answer under Transformers."""
    if row["seq_len"] is None:
        raise Inexpressible("the length of the prompt is not stated")
    told = " ".join(str(row[name] or "") for name in ("weights_dtype", "precision_policy")).lower()
    dtype = next((DTYPES[word] for word in re.findall(r"\w+", told) if word in DTYPES), None)
    if dtype is None:
        raise Inexpressible("the dtype of the weights is not stated")
    attention = next((name for word, name in ATTENTION if word in (row["attn_impl"] or "").lower()), None)
    job = Job(kind="inference", model=row["model"], attention=attention)  # type: ignore[arg-type]  # not stated
    job.weights.dtype, job.weights.quantization = dtype, packed(row["quantization"])
    job.versions = versions(row["framework_version"])
    job.inference = Inference(
        batch_size=row["micro_batch"] or 1, prompt_length=row["seq_len"], new_tokens=row["gen_len"] or 1
    )
    return job


def packed(name: str | None) -> Quantization | None:
    """'GPTQ-Int4', 'AWQ' -> Quantization. Raises Inexpressible for another name."""
    if not name:
        return None
    low = name.lower()
    if low.startswith("gptq"):
        return Quantization("gptq", 8 if "int8" in low else 4, group_size=GROUP)
    if low.startswith("awq"):
        return Quantization("awq", 4, group_size=GROUP)
    raise Inexpressible(f"quantisation {name}")
