"""The weights of one rank as an inference engine holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import storage
from .parameters import effective_quantization, parameters
from .versions import older

if TYPE_CHECKING:
    from ..job import Job, Quantization
    from ..models.model import Model
    from .parameters import Parameter


def serving_parameters(job: Job, model: Model) -> tuple[Parameter, ...]:
    """The parameters of the rank that holds most, with expert weights packed where the engine has them packed.

    Checkpoints quantised beforehand (GPTQ, AWQ, FP8, compressed-tensors) hold each expert's matrices packed, and
    serving engines load them so. bitsandbytes packs what it finds as nn.Linear: experts before transformers 5, whose
    fused expert tensors it leaves in 16 bits.
    """
    found = parameters(job, model)
    quantization = effective_quantization(job, model)
    if quantization is None or not _packs_experts(job, quantization):
        return found
    return tuple(_packed(item, quantization) for item in found)


def _packs_experts(job: Job, quantization: Quantization) -> bool:
    if not quantization.method.startswith("bnb"):
        return True
    engine = job.inference.engine if job.inference else "transformers"
    return engine == "vllm" or older(job.versions.get("transformers"), "5.0")


def _packed(item: Parameter, quantization: Quantization) -> Parameter:
    if item.packed or not item.role.startswith("expert_") or len(item.shape) < 3 or item.part != "base":
        return item
    if any(part in item.name for part in quantization.skip):
        return item
    return item._replace(pieces=storage.packed_pieces(item.shape, quantization), packed=True)
