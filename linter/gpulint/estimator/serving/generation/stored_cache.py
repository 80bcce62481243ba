"""The KV cache's dtype that a quantised checkpoint states, which `auto` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....upstream.serving import sglang, vllm
from ....upstream.stack import Stack
from ...states.checkpoint import COMPRESSED, named_quantization, stated_quantization, stored_quantization

if TYPE_CHECKING:
    from ....job.job import Job
    from ....models.model import Model

FP8_BITS = 8


def cache_dtype(job: Job, model: Model) -> str | None:
    """The job's `kv_cache_dtype`; where that is `auto`, fp8 for a checkpoint that states 8-bit floats for the cache.

    Model Optimizer states a `kv_cache_scheme`, or `kv_cache_quant_algo` in older files; compressed-tensors any scheme,
    which can be 8-bit floats alone. 4-bit schemes are left at `auto`, and so is SGLang's sparse attention, whose dtype
    is set before (srt/server_args.py `_set_default_nsa_kv_cache_dtype`).
    """
    given = job.serving
    dtype = given.kv_cache_dtype
    config = stated_quantization(model)
    if given.engine == "sglang" and model.shape.index_head_dim:
        return dtype
    if (dtype or "auto").lower() != "auto" or config is None:
        return dtype
    method, stack = str(config.get("quant_method", "")).lower(), Stack(job)
    if method.startswith("modelopt") and _reads_modelopt(stack) and _stated_fp8(config):
        return "fp8"
    compressed = method in COMPRESSED and config.get("kv_cache_scheme") is not None
    return "fp8" if compressed and stack.does(vllm.READS_COMPRESSED) else dtype


def fp8_perhaps(job: Job, model: Model) -> bool:
    """Whether the cache may be fp8 and nothing at hand says so: an NVFP4 checkpoint known by its name alone.

    Those that Model Optimizer writes state it as a rule, those of llm-compressor as a rule do not.
    """
    given = job.serving
    if (given.kv_cache_dtype or "auto").lower() != "auto" or stored_quantization(model) is not None:
        return False
    named = named_quantization(job, model)
    return named is not None and named.method == "nvfp4" and _reads_modelopt(Stack(job))


def _reads_modelopt(stack: Stack) -> bool:
    return stack.does(vllm.READS_MODELOPT) or stack.does(sglang.READS_MODELOPT)


def _stated_fp8(config: dict[str, Any]) -> bool:
    inner = config.get("quantization")
    for part in (inner if isinstance(inner, dict) else config, config):
        scheme = part.get("kv_cache_scheme")
        if isinstance(scheme, dict) and scheme:
            fixed = scheme.get("dynamic") is False
            return fixed and scheme.get("num_bits") == FP8_BITS and scheme.get("type") == "float"
    for part in (inner if isinstance(inner, dict) else config, config):
        if algorithm := part.get("kv_cache_quant_algo"):
            return str(algorithm).upper() == "FP8"
    return False
