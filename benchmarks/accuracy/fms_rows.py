"""Reference runs of fms-acceleration (HF Trainer on A100) as Jobs.

With `bf16: true` the Trainer's accelerator runs in mixed precision, and FSDP keeps what is trained in float32; the
runs without it are pure bf16. `accelerated-peft-bnb` leaves norms, embeddings and head alone, the baseline prepares
for k-bit training. LoRA and bases of the plugins have one dtype, as flattened FSDP parameters need.
"""

from __future__ import annotations

from typing import Literal

from gpulint.job import Adapter, Fsdp, Job, Quantization

from .case import Case, Inexpressible, Row, hardware, measured_bytes, versions
from .figures import COUNTERS

MIB = 1 << 20
BASES = {"TheBloke/Mistral-7B-v0.1-GPTQ": "mistralai/Mistral-7B-v0.1"}
"""Quantised repositories by the model whose config they repeat."""


def cases(row: Row) -> list[Case]:
    """The row's allocated peak, and what nvidia-smi saw on the same run."""
    job = job_of(row)
    outcome = "oom" if row["outcome"] == "oom" else "fits"
    figure = COUNTERS.get(row["counter_class"], "allocated")
    found = [Case(row["id"], row["source_group"], job, figure, measured_bytes(row), outcome, True, row["confidence"])]
    seen = (row["extra_measurements"] or {}).get("nvidia_smi_peak_MiB")
    if seen and outcome == "fits":
        found.append(Case(f"{row['id']}-nvml", "fms_acceleration_refs nvidia-smi", job, "process", seen * MIB))
    return found


def job_of(row: Row) -> Job:
    """The Trainer run of a row."""
    kernels = row["fused_ce"]
    job = Job(model=BASES.get(row["model"], row["model"]), attention=row["attn_impl"])
    job.micro_batch_size, job.sequence_length, job.packing = row["micro_batch"], row["seq_len"], True
    job.activation_checkpointing = "full"
    job.optimizer.name = "adamw_torch"
    policy = row["precision_policy"]
    dtype: Literal["float16", "bfloat16"] = "float16" if policy.startswith("weights float16") else "bfloat16"
    job.weights.dtype = dtype
    job.precision.autocast = None if "no autocast" in policy else dtype
    job.liger_kernels = kernels != "HF default CE (fp32 logits)"
    job.loss.kernel = loss_kernel(kernels)
    if row["lora"]:
        given = row["lora"]
        job.method = "lora"
        job.adapter = Adapter("lora", given["r"], given["alpha"], given["dropout"], given["targets"])
        job.adapter.dtype = "float32" if "baseline" in row["id"] else None
    quantize(job, row)
    hardware(job, row)
    if row["sharding"]:
        job.parallelism.fsdp = Fsdp(
            version=1, wrap="transformer", backward_prefetch="backward_pre", use_orig_params=False,
            upcast_trainable=job.precision.autocast is not None,
        )  # fmt: skip
    job.versions = versions(row["framework_version"])
    return job


def loss_kernel(kernels: str) -> str:
    """`fast` is Unsloth's cross entropy: 16-bit logits, whose gradient overwrites them."""
    if kernels.startswith("HF"):
        return "torch"
    return "liger" if kernels.startswith("Liger") else "unsloth"


def quantize(job: Job, row: Row) -> None:
    """bitsandbytes NF4 without double quantisation, or GPTQ's 4 bits in groups of 128."""
    name = row["quantization"]
    if name is None:
        return
    if name.startswith("bnb"):
        job.weights.quantization = Quantization("bnb-nf4", 4)
        if job.adapter is not None:
            job.adapter.prepare_kbit = "baseline" in name
        return
    if name.startswith("GPTQ"):
        job.weights.quantization = Quantization("gptq", 4, group_size=128)
        return
    raise Inexpressible(f"quantisation {name}")
