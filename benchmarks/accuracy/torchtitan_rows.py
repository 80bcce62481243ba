"""torchtitan's tables as Jobs: float32 shards, bf16 in compute, gradients reduced in float32 (FSDP2's policy).

Until June 2024 the loop named the logits through backward (#391 deletes them), until October the model made them
float32. `--training.compile` was about the model: the loss stayed eager (train.py at 83c879f18 and 2271b6386) until
#1033 of April 2025. The chunked loss of #996 cuts the whole 16-bit logits (components/loss.py at e23bb707d).

Early 2024 it took `AdamW(foreach=True)`, later `fused=True`; from October 2024 on run_train.sh sets
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. Until #1094 of July 2025 the last layer stayed gathered for its
backward, but with `always`; since then embedding and head are units of their own. Tensor parallelism comes with
sequence parallelism.
"""

from __future__ import annotations

from typing import Literal

from gpulint.job.job import Fsdp, FsdpMixedPrecision, Job

from .case import GIB, Case, Inexpressible, Row, hardware, measured_bytes
from .figures import COUNTERS

CHUNKS = 8
FOREACH = "titan-165"
"""The rows of pull request 165 (March 2024, a nightly of torch 2.4), before `fused` was an option."""

CAPTURED = "titan-2570"
CAPTURE = (
    "the commit is of graph_trainer: whether its eager run with checkpointing was captured as a graph is not stated;"
    " its configs compile the loss, too (aot_eager), whose partition decides what is kept"
)


def cases(row: Row) -> list[Case]:
    """The row's counter, and reserved bytes where the row has both."""
    if row["quantization"] and not row["compile"]:
        raise Inexpressible("eager float8: what its casts keep is not known")
    if "graph_trainer" in str(row["compile"]):
        raise Inexpressible("graph_trainer: what is recomputed is the compiler's choice")
    if row["gradient_checkpointing"] is None:
        raise Inexpressible("activation checkpointing is not stated")
    if row["id"].startswith(FOREACH) and row["parallel"].get("tp", 1) > 1:
        raise Inexpressible(
            "peak active: freed blocks count until NCCL's stream is done with them (torchtitan sets"
            " TORCH_NCCL_AVOID_RECORD_STREAMS only from 8f163ba10 on); how far the host runs ahead is not stated"
        )
    job = training(row)
    figure = "resident" if row["category"] == "train_init" else COUNTERS[row["counter_class"]]
    if row["counter_class"] == "torch_peak_active" and job.parallelism.fsdp and job.parallelism.fsdp.version == 1:
        figure = "active"
    found = [Case(row["id"], row["source_group"], job, figure, measured_bytes(row), None, True, row["confidence"])]
    if row["id"].startswith(CAPTURED):
        found[0] = found[0]._replace(unknown=CAPTURE)
    reserved = (row["extra_measurements"] or {}).get("peak_reserved_GiB")
    if reserved:
        found.append(Case(f"{row['id']}-reserved", row["source_group"], job, "reserved", reserved * GIB))
    return found


def training(row: Row) -> Job:
    """A pretraining run."""
    job = Job(model=row["model"], objective="pretrain", attention="sdpa", packing=True, framework="torchtitan")
    early = row["id"].startswith(FOREACH)
    job.versions = {"torchtitan": "0.0.1", "torch": "2.4"} if early else {"torchtitan": "0.0.2"}
    job.weights.dtype = "float32"
    job.precision.compute = next((name for name in ("float8", "mxfp8", "nvfp4") if name in _said(row)), None)
    job.micro_batch_size, job.sequence_length = row["micro_batch"], row["seq_len"]
    stated = row["gradient_checkpointing"]
    if stated:
        job.activation_checkpointing = "full" if stated.startswith("full") else "selective"
        job.checkpoint_policy = "every_second_matmul"
    job.compile, job.loss.compiled = bool(row["compile"]), False
    if row["id"].startswith(CAPTURED):
        job.unstated = ["loss.compiled"]
    job.optimizer.name = "adamw_torch" if row["id"].startswith(FOREACH) else "adamw_torch_fused"
    if row["fused_ce"] and "hunk" in row["fused_ce"]:
        job.loss.kernel, job.loss.chunk = "chunked", job.micro_batch_size * job.sequence_length // CHUNKS
        job.loss.logits = "whole"
    if row["id"].startswith(FOREACH):
        job.loss.kept, job.loss.upcast = True, "model"
    job.allocator.expandable_segments = not row["id"].startswith(FOREACH)
    hardware(job, row)
    job.parallelism.tensor = row["parallel"].get("tp", 1)
    job.parallelism.sequence = job.parallelism.tensor > 1
    version: Literal[1, 2] = 1 if row["sharding"].startswith("FSDP1") else 2
    fsdp = Fsdp(version=version, wrap="transformer")
    fsdp.mixed_precision = FsdpMixedPrecision("bfloat16", "float32")
    if "never" in row["sharding"]:
        fsdp.reshard_after_forward, fsdp.sharding = False, "shard_grad_op"
    if row["id"].startswith(CAPTURED):
        fsdp.outer = "separate"
    elif version == 2:
        fsdp.keeps_last_layer_gathered = not row["id"].endswith(("always", "never"))
    job.parallelism.fsdp = fsdp
    return job


def _said(row: Row) -> str:
    return (row["quantization"] or "").lower()
