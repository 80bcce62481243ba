"""Qwen's own tables as Jobs: the speed benchmark of Qwen2 and 2.5, and the README of the first Qwen."""

from __future__ import annotations

from gpulint.job.job import Adapter, Inference, Job, Zero
from gpulint.models.resolve import resolve

from . import plain_rows
from .case import GIB, Case, Inexpressible, Row, hardware, measured_bytes
from .figures import COUNTERS

RELEASES = {"1.8b": "0.12.3", "72b": "0.12.3"}
"""DeepSpeed's newest on the day a model's rows came into the README: 30 November 2023, and of the others (`FIRST`)
7 October. Which ran is not stated: before 0.12.3 stage 3 tests gradients of bfloat16 too."""

FIRST = "0.11.0"


def speed_case(row: Row) -> Case:
    """`generate` of 2048 tokens after a prompt; the sum over GPUs of a layer split where there are several."""
    if row["confidence"] == "low":
        raise Inexpressible("the value exceeds the cards that the source names")
    return plain_rows.case(row)


def generation(row: Row, prompt: int, new: int) -> Job:
    """A transformers generation run in 16 bits."""
    job = Job(kind="inference", model=row["model"])
    job.weights.quantization = plain_rows.packed(row["quantization"])
    job.weights.dtype = "bfloat16" if row["weights_dtype"].lower().startswith("bf") else "float16"
    job.inference = Inference(batch_size=row["micro_batch"], prompt_length=prompt, new_tokens=new)
    hardware(job, row)
    return job


def readme_inference(row: Row) -> Case:
    """The first Qwen's remote code: the whole prompt's logits, and a cache of tuples that torch.cat grows.

    The unit is GiB (the script divides by 1024^3, the row's `counter`): 144.69 GB would be less than the 72B model's
    weights and cache. The figures of 7B and 14B are those that the README of its commit fc57dea (2023-09) gives for
    "encoding 2048 tokens as context (and generating single token)".
    """
    if row["kv_cache_dtype"] == "int8":
        raise Inexpressible("Qwen's int8 cache with its own kernels: no such kv_cache_dtype in transformers")
    if row["seq_len"] is None:
        raise Inexpressible("the length of the prompt is not stated, and neither is the counter")
    encoded = any(size in row["id"] for size in ("-7b-", "-14b-"))
    job = generation(row, row["gen_len"], 1) if encoded else generation(row, row["seq_len"], row["gen_len"])
    job.attention = "flash_attention_2" if row["attn_impl"].startswith("flash") else "eager"
    job.versions = {"transformers": "4.32.0", "torch": "2.0.1"}
    figure = COUNTERS.get(row["counter_class"], "process")
    if row["scope"].startswith("SUM") and row["n_gpus"] > 1:
        figure = "allocated summed"
    measured = row["measured_value"] * GIB
    return Case(row["id"], row["source_group"], job, figure, measured, None, True, row["confidence"])


def readme_finetune(row: Row) -> Case:
    """finetune.py of the first Qwen: Trainer with bf16, ZeRO-2 for Q-LoRA, ZeRO-3 for full runs, on one GPU too.

    The README states torch 2.0, and no release of DeepSpeed (`RELEASES`).
    """
    job = Job(model=row["model"].removesuffix("-Int4"), attention=row["attn_impl"], framework="qwen")
    job.micro_batch_size, job.sequence_length = row["micro_batch"], row["seq_len"]
    job.gradient_accumulation_steps = row["grad_accum"]
    job.activation_checkpointing = "full"
    job.optimizer.name = "adamw_torch"
    job.weights.dtype = "bfloat16"
    job.precision.autocast = "bfloat16"
    given = row["lora"]
    if given:
        job.method = "lora"
        job.adapter = Adapter("lora", given["r"], given["alpha"], given["dropout"], TARGETS)
        job.adapter.modules_to_save = ["wte", "lm_head"] if given["modules_to_save"] else []
    if row["quantization"]:
        job.weights.quantization = plain_rows.packed("gptq")
        job.weights.dtype, job.precision.autocast = "float16", "float16"
        if job.adapter is not None:
            job.adapter.prepare_kbit = True
    hardware(job, row)
    stage = (row["parallel"] or {}).get("zero_stage") or (2 if row["n_gpus"] > 1 else None)
    if not stage and "DeepSpeed" in row["precision_policy"]:
        stage = 3
    if stage:
        job.parallelism.zero = deepspeed(stage, resolve(row["model"].removesuffix("-Int4")).shape.hidden)
        job.optimizer.name = "fused_adam"
        job.precision.master_weights, job.precision.autocast = True, None
    job.versions = {"transformers": "4.32.0", "torch": "2.0.1", "peft": "0.6.0"}
    if stage:
        size = row["id"].removeprefix("qwen1-ft-").partition("-")[0]
        job.versions["deepspeed"], job.unstated = RELEASES.get(size, FIRST), ["versions.deepspeed"]
    figure = "process summed" if row["scope"].startswith("SUM") else "process"
    found = Case(row["id"], row["source_group"], job, figure, measured_bytes(row), None, True, row["confidence"])
    return found._replace(unknown=COUNTER, counted=False, other=row["measured_value"] * GIB)


def deepspeed(stage: int, hidden: int) -> Zero:
    """finetune/ds_config_zero2.json and ds_config_zero3.json, whose optimizer is DeepSpeed's own.

    Of stage 3 the sizes are "auto", which the Trainer fills in from the hidden size (transformers 4.32 deepspeed.py).
    """
    if stage < 3:
        return Zero(stage=stage, overlap_comm=True, reduce_bucket_size=2 * 10**8, allgather_bucket_size=2 * 10**8)
    return Zero(
        stage=stage, overlap_comm=True, reduce_bucket_size=hidden**2, prefetch_bucket_size=int(0.9 * hidden**2),
        param_persistence_threshold=10 * hidden, gather_16bit_weights_on_save=True,
    )  # fmt: skip


COUNTER = (
    "the README calls it memory in GB: neither the unit, what was counted, nor the driver and DeepSpeed are stated"
)
"""As decimal GB two rows are less than their tensors (14B LoRA at 2,048 tokens, 72B Q-LoRA at 8,192); the other tables
of the README print GiB under that name (`readme_inference`)."""

TARGETS = ["c_attn", "c_proj", "w1", "w2"]
"""`lora_target_modules` of Qwen's finetune.py; c_proj is in attention and in the MLP."""
