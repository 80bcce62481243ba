"""Reference runs of fms-acceleration (HF Trainer on A100) as Jobs.

With `bf16: true` the Trainer's accelerator runs in mixed precision, and FSDP keeps what is trained in float32; the
runs without it are pure bf16. NF4 is quantised twice, and stored in the dtype of the base so that FSDP can shard it
(framework_plugin_bnb.py); GPTQ's packed weights are views of that dtype for the same reason (autogptq_utils.py).
`accelerated-peft-bnb` leaves norms, embeddings and head alone. The baseline leaves the preparation to TRL 0.13, which
prepares for k-bit training and takes embeddings and head back to bfloat16 (`peft_module_casting_to_bf16`), but not
where FSDP shards the base (sft_trainer.py, `is_sharded_qlora`). The `foak` runs put Unsloth's cross entropy in the
place of torch's (kernels/unsloth/cross_entropy_loss.py): the loss of transformers is otherwise as it was. Their
RMSNorm and RoPE save what Liger's do, and over a quantised base LoRA runs in fused functions (fused_ops/unsloth_lora);
they are a group apart, as a Job cannot say that the norms' weights get no gradient. `from_quantized` of the
GPTQ plugin works out a device map in every rank, which opens a context on every GPU (gptqmodel/models/base.py,
accelerate's `get_max_memory`). What nvidia-smi shows has its first reading, before the run, taken off (benchmark.py).
Their accelerate.yaml does not state `fsdp_use_orig_params`, which `accelerate launch` then sets to true
(commands/launch.py 1.0.1).
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Literal

from gpulint.job.job import Adapter, Fsdp, Job, Quantization

from .case import Case, Inexpressible, Row, hardware, measured_bytes, versions
from .figures import COUNTERS

MIB = 1 << 20
DRIVER = "the driver: with the same torch a GPU held 1.1 GiB more than in November, as without lazy loading of kernels"
FOAK = "fms kernels (approximate jobs)"
BASES = {"TheBloke/Mistral-7B-v0.1-GPTQ": "mistralai/Mistral-7B-v0.1"}
"""Quantised repositories by the model whose config they repeat."""


def cases(row: Row) -> list[Case]:
    """The row's allocated peak, and what nvidia-smi saw on the same run."""
    job = job_of(row)
    outcome = "oom" if row["outcome"] == "oom" else "fits"
    figure = COUNTERS.get(row["counter_class"], "allocated")
    group = FOAK if job.loss.kernel != "torch" else row["source_group"]
    found = [Case(row["id"], group, job, figure, measured_bytes(row), outcome, True, row["confidence"])]
    seen = (row["extra_measurements"] or {}).get("nvidia_smi_peak_MiB")
    if seen and outcome == "fits":
        found.append(Case(f"{row['id']}-nvml", group, job, "process", seen * MIB, unknown=DRIVER))
    return [*found, *earlier(row)]


def earlier(row: Row) -> list[Case]:
    """The row as the table had it before: groups of their own, on a machine that held 1.1 GiB less outside torch."""
    table = _earlier()
    found = []
    for month, seen in table["rows"].get(row["id"], {}).items():
        policy = row["precision_policy"].partition(";")[0] + ("; autocast" if seen["autocast"] else "; no autocast")
        job = job_of(row | {"precision_policy": policy, "framework_version": table["runs"][month]["versions"]})
        name, group = f"{row['id']}-{month}", f"{row['source_group']} {month}"
        found.append(Case(name, group, job, "allocated", seen["peak_bytes"]))
        found.append(Case(f"{name}-nvml", group, job, "process", seen["nvidia_smi_MiB"] * MIB))
    return found


@cache
def _earlier() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(Path(__file__).with_name("fms_earlier.json").read_text(encoding="utf-8"))
    return table


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
    job.loss.kernel = loss_kernel(kernels)
    if job.loss.kernel != "torch":
        job.liger_kernels, job.liger_parts = True, ["norm", "rope"]
    if row["lora"]:
        given = row["lora"]
        job.method = "lora"
        job.adapter = Adapter("lora", given["r"], given["alpha"], given["dropout"], given["targets"])
    quantize(job, row)
    if job.adapter is not None and job.weights.quantization and "LoRA" in kernels:
        job.adapter.kernels = ["qkv", "o", "mlp"]
    hardware(job, row)
    if row["sharding"]:
        job.parallelism.fsdp = Fsdp(
            version=1, wrap="transformer", backward_prefetch="backward_pre", cpu_ram_efficient_loading=True,
            upcast_trainable=job.precision.autocast is not None,
        )  # fmt: skip
    if job.parallelism.fsdp is not None and job.weights.quantization and job.weights.quantization.method == "gptq":
        job.hardware.contexts = job.hardware.gpus or 1
    job.versions = versions(row["framework_version"])
    return job


def loss_kernel(kernels: str) -> str:
    """`fast` is Unsloth's cross entropy over the logits that torch's would get; the gradient overwrites them."""
    if kernels.startswith("HF"):
        return "torch"
    return "liger" if kernels.startswith("Liger") else "unsloth_cross_entropy"


def quantize(job: Job, row: Row) -> None:
    """bitsandbytes NF4 without double quantisation, or GPTQ's 4 bits in groups of 128."""
    name = row["quantization"]
    if name is None:
        return
    if name.startswith("bnb"):
        packed = Quantization("bnb-nf4", 4, double_quant=True)
        if job.adapter is not None and "baseline" in name:
            job.adapter.prepare_kbit = not row["sharding"]
            job.adapter.prepared_head = None if row["sharding"] else "bfloat16"
            job.adapter.dtype = "bfloat16" if row["sharding"] else None
    elif name.startswith("GPTQ"):
        packed = Quantization("gptq", 4, group_size=128)
    else:
        raise Inexpressible(f"quantisation {name}")
    packed.storage_dtype = job.weights.dtype if row["sharding"] else None
    job.weights.quantization = packed
