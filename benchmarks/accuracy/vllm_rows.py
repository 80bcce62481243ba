"""vLLM's start-up lines as Jobs: weights, profile run, CUDA graphs, and the tokens of the KV cache.

Unsloth starts vLLM with LoRA slots and a number of sequences that it works out itself; neither is in the log lines.
Where a row gives the cache's bytes, its tokens are held against the tokens of that many bytes.
"""

from __future__ import annotations

import re

from gpulint.job.job import Inference, Job, Quantization

from .case import GIB, Case, Inexpressible, Row, hardware, measured_bytes

BASES = {
    "neuralmagic/Meta-Llama-3.1-8B-Instruct-FP8-dynamic": "meta-llama/Llama-3.1-8B-Instruct",
    "Erland/DeepSeek-R1-0528-Qwen3-8B": "Qwen/Qwen3-8B",
}
"""Repositories that the catalogue lacks, by the model whose shape they have."""

FIGURES = {
    "inference_weights": "weights",
    "inference_activation": "profile run",
    "inference_kv": "kv_tokens",
}
UNKNOWN = {
    "vllm-17122-l31-8b-kv": "the arguments beside the length: 1,024 requests instead of 256 would leave these tokens",
    "vllm-51590-gptoss120b-tp8-weights": "the layout that the kernels of compute capability 12 want of MXFP4 experts",
    "vllm-12126-l32-11b-vision-act": "how much of Mllama's encoder lives at once: bounded, not derived",
}
"""What decides these rows and is told nowhere."""

UNSTATED = {"vllm-17122-l31-8b-kv": ["inference.max_num_batched_tokens", "inference.max_num_seqs"]}
"""The same as the interval's open facts, where a Job can say them: a thread that quotes `max_model_len` alone."""

VERSIONS = {
    "2024-08": "0.5.4",
    "2024-12": "0.6.4",
    "2025-01": "0.6.6",
    "2025-02": "0.7.2",
    "2025-04": "0.8.4",
    "2024-02": "0.3.0",
}
"""The release of the month that a row names."""


def case(row: Row) -> Case:
    """One line of a log."""
    unsloth = "Unsloth" in (row["framework_version"] or "")
    job = serving(row)
    category = row["category"]
    group = row["source_group"]
    measured = float(row["measured_value"]) if category == "inference_kv" else measured_bytes(row)
    pool = (row["extra_measurements"] or {}).get("kv_cache_GiB")
    job.unstated = UNSTATED.get(row["id"], [])
    given = job.inference
    assert given is not None
    if category == "inference_cudagraph":
        raise Inexpressible("the estimator's bytes for a captured graph come from these lines")
    if category == "inference_activation" and unsloth:
        raise Inexpressible("Unsloth sets max_num_seqs from the free memory; the log does not say it")
    if category == "inference_activation" and row["engine_args"] is None:
        raise Inexpressible("the arguments are not stated")
    if category == "inference_kv":
        if pool:
            given.kv_cache_memory_bytes = round(pool * GIB)
        elif job.hardware.gpu is None or unsloth:
            raise Inexpressible("the GPU is not named")
    if unsloth and category == "inference_weights":
        group = f"{group} weights with Unsloth's unstated LoRA slots"
    found = Case(row["id"], group, job, FIGURES[category], measured, None, True, row["confidence"])
    return found._replace(unknown=UNKNOWN.get(row["id"], ""))


def serving(row: Row) -> Job:
    """The engine's arguments, as far as a row has them."""
    if row["model"].startswith("/") or "sft" in row["model"]:
        raise Inexpressible("a private checkpoint: its config is not published")
    job = Job(kind="inference", model=BASES.get(row["model"], row["model"]))
    arguments = row["engine_args"] or ""
    given = Inference(engine="vllm", version=version_of(row["framework_version"]))
    length = re.search(r"max[_-]model[_-]len[= ](\d+)", arguments)
    if length:
        given.max_model_len = int(length[1])
    seqs = re.search(r"max[_-]num[_-]seqs[= ](\d+)", arguments)
    if seqs:
        given.max_num_seqs = int(seqs[1])
    share = re.search(r"gpu_memory_utilization=([\d.]+)", arguments)
    if share:
        given.gpu_memory_utilization = float(share[1])
    given.enforce_eager = "--enforce-eager" in arguments or "enforce_eager=True" in arguments
    given.kv_cache_dtype = row["kv_cache_dtype"] if row["kv_cache_dtype"] in ("fp8", "auto") else None
    job.inference = given
    job.parallelism.tensor = (row["parallel"] or {}).get("tp", 1)
    dtype = row["weights_dtype"]
    job.weights.dtype = "float16" if "dtype=torch.float16" in arguments or dtype == "fp16" else "bfloat16"
    if row["model"].startswith("neuralmagic"):
        job.weights.quantization = Quantization("fp8", 8)
    elif row["model"].startswith("Erland"):
        job.weights.quantization = Quantization("bnb-nf4", 4)
    elif "AWQ" in (dtype or ""):
        job.weights.quantization = Quantization("awq", 4, group_size=128)
    return hardware(job, row)


def version_of(text: str | None) -> str | None:
    """'v0.8.5.post1 (via ...)' -> '0.8.5.post1'; a month by the release of that month."""
    text = text or ""
    found = re.search(r"v?(\d+\.\d+\.\d+(?:\.post\d+)?)", text)
    if found:
        return found[1]
    return next((version for month, version in VERSIONS.items() if month in text), None)
