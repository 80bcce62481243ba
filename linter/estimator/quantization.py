"""The quantisation that counts: the job's, else what its checkpoint states or its repository's name says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .checkpoint import named_quantization, stored_quantization
from .estimate import Assumption
from .frameworks import framework
from .keeping import kept, left_out
from .versions import older

if TYPE_CHECKING:
    from ..job import Job, Quantization
    from ..models.model import Model


def effective_quantization(job: Job, model: Model) -> Quantization | None:
    """The job's quantisation, else the checkpoint's own (`quantization_config`), else what its name states.

    `experts` of it says whether expert tensors are packed. Training over an MXFP4 checkpoint unpacks it to 16 bits
    (transformers Mxfp4HfQuantizer, `dequantize`).
    """
    found = job.weights.quantization
    ready = found is None
    if found is None:
        found = stored_quantization(model) or named_quantization(job, model)
    if found is None:
        return found
    found = left_out(found, kept(job, model))
    if framework(job).packs_head and found.method.startswith("bnb"):
        found = replace(found, head=True)
    if found.experts:
        return found
    if ready and found.method == "mxfp4" and job.kind == "training":
        return None
    return replace(found, experts=_packs_experts(job, model, found, ready))


FUSED_BEFORE_5 = frozenset(
    {
        "llama4", "llama4_text", "gpt_oss", "granitemoe", "granitemoeshared", "granitemoehybrid", "dbrx", "jetmoe",
        "qwen3_vl_moe", "qwen3_vl_moe_text", "aria", "aria_text",
    }
)  # fmt: skip
"""Model types whose experts are fused tensors in transformers 4.57 too (their modeling files)."""


def _packs_experts(job: Job, model: Model, quantization: Quantization, ready: bool) -> bool:
    """Whether a method packs expert weights.

    Checkpoints quantised beforehand (GPTQ, AWQ, FP8, compressed-tensors) hold each expert's matrices packed, and
    engines load them so. What packs on loading finds nn.Linear: experts before transformers 5, whose fused tensors
    it leaves in 16 bits. vLLM packs its experts itself.
    """
    engine = job.inference.engine if job.kind == "inference" and job.inference else "transformers"
    if engine == "vllm" or (not quantization.method.startswith("bnb") and (ready or job.kind == "inference")):
        return True
    return older(job.versions.get("transformers"), "5.0") and model.model_type not in FUSED_BEFORE_5


def named_assumption(job: Job, model: Model) -> Assumption | None:
    """The line that says the name is the source, where it is."""
    if job.weights.quantization is not None or model.named_quantization is None:
        return None
    found = effective_quantization(job, model)
    if found is None:
        return None
    note = f"its name, {model.id}, says so; there is no quantization_config to read"
    return Assumption("weights.quantization.method", found.method, note)
