"""LitGPT's resource tables and tutorials as Jobs.

LitGPT has its own model code: torch's one-kernel gelu where Transformers writes it out, the head never tied, the
vocabulary padded to `padded_vocab_size` (litgpt/config.py). With `bf16-true` weights, adapters and moments have 16
bits. Head and cross entropy run in chunks of 128 tokens, whose logits all live until the backward pass. The first
step takes the longest sample. With several devices it shards with FSDP, one flat parameter for each block with its
adapters, and checkpoints every block; gradients of 128 samples accumulate under `no_backward_sync`
(finetune/lora.py at 8641822).
"""

from __future__ import annotations

from typing import Any

from gpulint.formats.native.litgpt_model import FUSED, changed, quantization_of
from gpulint.job.job import Adapter, Fsdp, Inference, Job, Quantization
from gpulint.models.llama_adapter import FIRST_VERSION, SECOND_VERSION
from gpulint.models.resolve import resolve

from .case import Case, Inexpressible, Row, hardware, measured_bytes, versions
from .figures import COUNTERS

BATCH = 128


def model_of(name: str) -> dict[str, Any]:
    """The model as LitGPT builds it."""
    found: dict[str, Any] = changed(resolve(name).config, name)
    return found


def quantization(name: str | None) -> Quantization | None:
    """LitGPT's `--quantize` flag."""
    found = quantization_of(name)
    if found is None and name not in (None, "", "none", "None"):
        raise Inexpressible(f"gpulint has no quantisation {name}")
    return found


def training(
    name: str, batch: int, length: int, quantize: str | None, devices: int, checkpointing: bool | None = None
) -> Job:
    """A `bf16-true` fine-tuning run."""
    job = Job(model=model_of(name), micro_batch_size=batch, sequence_length=length, attention="sdpa")
    job.framework = "litgpt"
    job.weights.dtype = "bfloat16"
    job.weights.quantization = quantization(quantize)
    job.optimizer.name = "paged_adamw_32bit" if quantize and quantize.startswith("bnb.") else "adamw_torch"
    job.gradient_accumulation_steps = BATCH // batch
    sharded = devices > 1
    job.activation_checkpointing = "full" if (sharded if checkpointing is None else checkpointing) else "none"
    if sharded:
        job.parallelism.fsdp = Fsdp(version=1, wrap="transformer", use_orig_params=True, wrap_adapters=False)
    return job


def lora(job: Job, name: str, r: int, dropout: float, targets: list[str]) -> Job:
    """LitGPT's LoRA in the dtype of the base; `targets` in its names (query, key, value, projection, mlp, head)."""
    kind = resolve(name).model_type
    if kind in FUSED and set(targets) & {"q_proj", "k_proj", "v_proj"}:
        targets = [*targets, *FUSED[kind]]
    job.method = "lora"
    job.adapter = Adapter("lora", r, alpha=2.0 * r, dropout=dropout, targets=targets, dtype="bfloat16")
    return job


def llama_adapter(job: Job, version: str) -> Job:
    """LitGPT's LLaMA-Adapter in the dtype of the base, `v1` or `v2`."""
    job.method = "adapter"
    job.adapter = Adapter(SECOND_VERSION if version == "v2" else FIRST_VERSION, dtype="bfloat16")
    return job


def generation(name: str, quantize: str | None, prompt: int, new: int) -> Job:
    """`generate/base.py`: one prompt, a cache for prompt and answer, weights in bf16."""
    job = Job(kind="inference", model=model_of(name), attention="sdpa", framework="litgpt")
    job.weights.dtype = "bfloat16"
    job.weights.quantization = quantization(quantize)
    job.inference = Inference(batch_size=1, prompt_length=prompt, new_tokens=new, full_prefill_logits=True)
    return job


def case(row: Row) -> Case:
    """One row of the tables."""
    if "mixed" in (row["precision_policy"] or "") and row["category"] == "inference_total":
        raise Inexpressible("generation under autocast of fp32 weights: a Job's inference has no autocast cache")
    quantize = row["quantization"]
    if row["category"] == "inference_total":
        job = generation(row["model"], quantize, PROMPT, row["gen_len"] or 50)
    else:
        job = training(
            row["model"], row["micro_batch"], row["seq_len"], quantize, row["n_gpus"], row["gradient_checkpointing"]
        )
        job.longest_batch_first = True
        if row["method"].startswith("adapter"):
            llama_adapter(job, row["method"].removeprefix("adapter_"))
        else:
            chosen = [f"{target}_proj" for target in row["lora"]["targets"]]
            lora(job, row["model"], row["lora"]["r"], row["lora"].get("dropout", 0.05), chosen)
        if "mixed" in row["precision_policy"]:
            job.weights.dtype, job.precision.autocast = "float32", "bfloat16"
            assert job.adapter is not None
            job.adapter.dtype = "float32"
    hardware(job, row)
    job.versions = {**versions(row["framework_version"]), "litgpt": "0.1"}
    outcome = "oom" if row["outcome"] == "oom" else "fits"
    figure = COUNTERS.get(row["counter_class"], "allocated")
    return Case(row["id"], row["source_group"], job, figure, measured_bytes(row), outcome, True, row["confidence"])


PROMPT = 8
"""Tokens of the default prompt "Hello, my name is"."""
