"""torchtune's tables as Jobs: pure bf16 throughout, adapters included, attention by SDPA.

The optimizers of its recipes are `fused=True`. The chunked loss (8 chunks of the batch, `CEWithChunkedOutputLoss`)
makes the head's 16-bit logits piece by piece and upcasts one at a time; without it the model makes them float32
(torchtune/modules/transformer.py 0.5), and `compile=True` leaves it alone: the recipes drop what `compile_loss`
returns, which is the compiled loss only where that is not chunked (recipes/full_finetune_single_device.py and
*_distributed.py at 1814feb17). Its NF4 is torchao's, with scales quantised once more, of every linear layer but the
head (`FrozenNF4Linear`, #1119), and FSDP2 shards it. `AdamW8bit` is torchao's (docs/source/tutorials/
memory_optimizations.rst; bitsandbytes' is the paged one).
"""

from __future__ import annotations

from typing import Any, Literal

from gpulint.formats.torchtune.format import loss_chunk
from gpulint.formats.torchtune.model import MLP
from gpulint.formats.torchtune.model import MODULES as ATTENTION
from gpulint.job.job import Adapter, Fsdp, FsdpMixedPrecision, Job, Quantization

from .case import Case, Inexpressible, Row, hardware, measured_bytes, versions
from .figures import COUNTERS

MODULES = {
    "q": ["q_proj"],
    "k": ["k_proj"],
    "v": ["v_proj"],
    "o": ["o_proj"],
    "output_proj(attn)": ["o_proj"],
    "mlp": [*MLP],
    "output": ["lm_head"],
}
LINEAR = (*ATTENTION.values(), *MLP)
UNNAMED = "tune-31-"
"""The README table of 24 September 2024 (#1664): batch, length and compile alone; no config, no flags and no torch, by
which `compile_model` makes one graph of the model (before 2.5, of October) or one of each layer."""

TORCHAO = "torchao's release and torch's, which decide what the compiled 8-bit AdamW makes beside its states"
STEP = "whose peak it is: this is what the first step holds, before AdamW has states"
"""What the README's figures of LoRA and QLoRA leave open: the counter begins anew at each step
(torchtune/training/memory.py `get_memory_stats`)."""

TORCH = "2.5"
"""The stable release of the tables with AdamW8bit (November 2024)."""

UNPACKED = "58255001b"
"""The README table of 9 May 2024 (#955); sample packing came on 14 May (#875)."""


def case(row: Row) -> Case:
    """One row of the README or a tutorial."""
    if row["confidence"] == "low":
        raise Inexpressible(row["caveat"] or "the recipe's flags are not stated")
    if row["id"].startswith(UNNAMED):
        raise Inexpressible("the recipe's flags and torch, which decides what compile=True compiles, are not stated")
    if row["source_commit"].startswith(UNPACKED):
        raise Inexpressible(
            "the table is older than sample packing: its length is a cap, the batches' own is not stated"
        )
    if row["category"] == "train_init":
        job, figure = training(row), "load"
        if row["counter_class"] == "torch_peak_reserved":
            raise Inexpressible("reserved bytes after loading only: an estimate's reserved tier is that of a step")
    elif row["seq_len"] is None or row["packing"].startswith("none"):
        raise Inexpressible("unpacked Alpaca: the length of the longest batch is not stated")
    else:
        job, figure = training(row), COUNTERS[row["counter_class"]]
    outcome = "fits" if job.hardware.gpu else None
    found = Case(row["id"], row["source_group"], job, figure, measured_bytes(row), outcome, True, row["confidence"])
    if job.optimizer.name == "adamw_torch_8bit":
        job.versions.setdefault("torch", TORCH)
        found = found._replace(unknown=TORCHAO)
    elif row["lora"] and figure != "load":
        found = found._replace(unknown=STEP)
    return found._replace(each_step=figure != "load")


def training(row: Row) -> Job:
    """A recipe's run."""
    job = Job(model=row["model"], attention="sdpa", packing=True, framework="torchtune")
    job.weights.dtype = "bfloat16"
    job.micro_batch_size, job.sequence_length = row["micro_batch"] or 1, row["seq_len"] or 1
    job.gradient_accumulation_steps = row["grad_accum"] or 1
    plan = row["parallel"] or {}
    offloads = "activations" in str(plan.get("offload"))
    if row["gradient_checkpointing"]:
        job.activation_checkpointing = "offload" if offloads else "full"
    if "hunk" in (row["fused_ce"] or ""):
        job.loss.kernel, job.loss.chunk = "chunked", loss_chunk(job.micro_batch_size, job.sequence_length)
        job.loss.logits, job.loss.upcast = "pieces", "loss"
    else:
        job.loss.upcast, job.loss.compiled = "model", False
    job.compile = bool(row["compile"])
    optimizer(job, row["optimizer"] or "AdamW")
    hardware(job, row)
    if "fsdp" in plan:
        sharded(job, row, offload="params" in str(plan.get("offload")))
    if row["lora"]:
        lora(job, row["lora"])
        if row["weights_dtype"].startswith("NF4"):
            packed = Quantization("torchao-nf4", 4)
            packed.storage_dtype = "bfloat16" if "fsdp" in plan else None
            job.weights.quantization = packed
    elif row["method"] != "full" and row["category"] != "train_init":
        raise Inexpressible("the LoRA targets are not stated")
    job.versions = {**versions(row["framework_version"]), "torchtune": "0.4"}
    return job


def lora(job: Job, given: dict[str, Any]) -> None:
    """LoRA in bf16, like all of torchtune's weights."""
    unknown = [target for target in given.get("targets", ["?"]) if target not in MODULES]
    if unknown:
        raise Inexpressible("the LoRA targets are not stated")
    targets = [name for target in given["targets"] for name in MODULES[target]]
    job.method = "lora"
    job.adapter = Adapter("lora", given["r"], given["alpha"], 0.0, targets, dtype="bfloat16")


def optimizer(job: Job, text: str) -> None:
    """torch.optim.AdamW(fused=True), or what the row says."""
    low = text.lower()
    if "pagedadamw8bit" in low:
        job.optimizer.name = "paged_adamw_8bit"
    elif "pagedadamw" in low:
        job.optimizer.name = "paged_adamw_32bit"
    elif "8bit" in low and "not 8-bit" not in low:
        job.optimizer.name = "adamw_torch_8bit"
    else:
        job.optimizer.name = "adamw_torch_fused"
    job.optimizer.in_backward = "in_bwd" in low


def sharded(job: Job, row: Row, *, offload: bool) -> None:
    """FSDP over all GPUs, one unit a layer; FSDP2 from July 2024 on.

    With FSDP2 each tensor is moved to the GPU, packed and divided by itself (torchtune 0.3 training/_distributed.py
    `load_from_full_model_state_dict`), and the full recipes shard `tok_embeddings` and `output` as units of their own
    (configs/llama3_1/70B_full.yaml `custom_sharded_layers`).
    """
    version: Literal[1, 2] = 2 if row["sharding"].startswith("FSDP2") else 1
    job.parallelism.fsdp = Fsdp(version=version, wrap="transformer", offload=offload)
    job.parallelism.fsdp.mixed_precision = FsdpMixedPrecision("bfloat16", "bfloat16")
    if version == 2:
        job.parallelism.fsdp.cpu_ram_efficient_loading = True
        if row["method"] == "full":
            job.parallelism.fsdp.outer = "separate"
