"""Single figures from documentation: Transformers' optimisation tutorial and DeepSpeed's Muon post."""

from __future__ import annotations

from gpulint.job.job import Inference, Job, Quantization

from .case import Case, Inexpressible, Row, hardware, measured_bytes

OCTOCODER = "bigcode/starcoder"
"""OctoCoder is StarCoder tuned further, with StarCoder's config."""
PROMPT = 30


def tutorial(row: Row) -> Case:
    """`pipe(prompt, max_new_tokens=60)` with a prompt of at most 30 tokens."""
    if "long" in row["id"]:
        raise Inexpressible("the number of prompt tokens is not printed")
    job = Job(kind="inference", model=OCTOCODER, attention=row["attn_impl"] or "sdpa")
    job.weights.dtype = "bfloat16" if row["weights_dtype"] == "bf16" else "float16"
    quantization = row["quantization"] or ""
    if "int8" in quantization:
        job.weights.quantization = Quantization("bnb-int8", 8)
    elif "4bit" in quantization:
        job.weights.quantization = Quantization("bnb-fp4", 4)
    job.inference = Inference(batch_size=1, prompt_length=PROMPT, new_tokens=row["gen_len"])
    job.versions = {"transformers": "4.35.0"}
    hardware(job, row)
    return Case(row["id"], row["source_group"], job, "allocated", measured_bytes(row), None, True, row["confidence"])


def muon(_: Row) -> Case:
    """Refused."""
    raise Inexpressible("neither the sequence length nor the micro batch is stated")
