"""NeMo pretraining configs of AI-Hypercomputer as Jobs.

Megatron with `megatron_amp_O2`: bf16 weights, float32 gradients, master weights and moments in a distributed optimizer
(ZeRO-1 over the data-parallel ranks). Head and embedding are apart unless shared; the vocabulary is GPT-2's, padded to
a multiple of `make_vocab_size_divisible_by` times the tensor parallel size.
"""

from __future__ import annotations

from typing import Any

import yaml

from gpulint.formats.core.bindings.reader import Reader
from gpulint.formats.core.format import Project
from gpulint.formats.core.references import plain_document
from gpulint.formats.megatron.model import GPT2_VOCABULARY, config_of, padded
from gpulint.formats.nemo.nemo import NAME, UPSTREAM, stated_sizes
from gpulint.job.job import Job, Zero

from .case import SHARED, Case, Inexpressible, Row, gpu_of

GROUP = "nemo"


def case(row: Row) -> Case:
    """One config with the GPUs of its name."""
    path = SHARED / "corpus" / (row.get("corpus_path") or "-")
    if not path.is_file():
        raise Inexpressible("the config is not in the corpus")
    given = yaml.safe_load(path.read_text(encoding="utf-8"))["model"]
    if not row["n_gpus"]:
        raise Inexpressible("the number of GPUs is not stated")
    job = Job(model=config(given), objective="pretrain", attention="flash_attention_2", framework="megatron")
    job.precision.compute = "float8-te" if given.get("fp8") else None
    job.weights.dtype = "bfloat16"
    job.precision.gradients, job.precision.master_weights = "float32", True
    if given["optim"].get("grad_sync_dtype") == "bf16":
        job.precision.gradients = "bfloat16"
    job.micro_batch_size, job.sequence_length = given["micro_batch_size"], given["encoder_seq_length"]
    checkpointing = given.get("activations_checkpoint_granularity")
    job.activation_checkpointing, job.checkpoint_policy = checkpointing or "none", "core_attention"
    plan = job.parallelism
    plan.tensor, plan.pipeline = given["tensor_model_parallel_size"], given["pipeline_model_parallel_size"]
    plan.context = given.get("context_parallel_size") or 1
    plan.expert = given.get("expert_model_parallel_size") or 1
    plan.sequence = bool(given.get("sequence_parallel"))
    plan.virtual_stages = given.get("virtual_pipeline_model_parallel_size") or 1
    plan.zero = Zero(stage=1, library="megatron")
    job.hardware.gpu, job.hardware.gpus = gpu_of(row["gpu"]), row["n_gpus"]
    ranks = row["n_gpus"] // (plan.tensor * plan.pipeline * plan.context)
    job.gradient_accumulation_steps = max(1, given["global_batch_size"] // (ranks * given["micro_batch_size"]))
    return Case(row["id"], GROUP, job, "process", None, row["outcome"], bool(row["strict"]), row["confidence"])


def config(given: dict[str, Any]) -> dict[str, Any]:
    """A config.json with the same shapes, as the NeMo format makes it."""
    document = plain_document({"model": given}, NAME)
    reader = Reader(document, Project("", None, None, None, lambda *_: None), NAME, UPSTREAM)
    tensor = given["tensor_model_parallel_size"]
    sizes = stated_sizes(reader, padded(GPT2_VOCABULARY, given["make_vocab_size_divisible_by"], tensor))
    if sizes is None:
        raise Inexpressible("the config states no sizes")
    shapes: dict[str, Any] = config_of(f"nemo-{sizes.layers}x{sizes.hidden}", sizes)
    return shapes
