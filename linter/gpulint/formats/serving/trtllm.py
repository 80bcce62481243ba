"""TensorRT-LLM: the flags of `trtllm-serve` and `trtllm-build`, and the YAML that `trtllm-serve --config` reads.

Facts from NVIDIA/TensorRT-LLM 1.3 (`commands/serve.py`, `commands/build.py`, `builder.py` BuildConfig, the LLM API's
KvCacheConfig). What the file of `--config` says wins over the flags (`serve.py`, update_llm_args_with_extra_dict).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.bindings.kinds import FLAG, INTEGER, NUMBER, POSITIVE, TEXT
from ..core.bindings.rows import LEAVE, NEVER, Default, Fixed, Key, Table
from ..core.format import Format
from .server import (
    Engine,
    Server,
    cache_dtype,
    degrees,
    gpus_of_degrees,
    quantization,
    served_model,
    server,
    spelled_as,
    stored_dtype,
)

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.bindings.rows import Say
    from ..core.format import Project, Reading
    from ..core.key_changes import Keys

ENGINE = Engine("trtllm", "tensorrt-llm", "1.3", "TensorRT-LLM")

QUANTIZATIONS: dict[str, tuple[str, float | None]] = {
    "FP8": ("fp8", 8), "FP8_BLOCK_SCALES": ("finegrained-fp8", 8), "W4A16_AWQ": ("awq", 4), "W4A16_GPTQ": ("gptq", 4),
    "W8A16": ("int8", 8), "NVFP4": ("nvfp4", 4), "W4A8_MXFP4_FP8": ("mxfp4", 4), "W4A16_MXFP4": ("mxfp4", 4),
    "fp8": ("fp8", 8), "fp8_kv": ("fp8", 8), "fp8_mlp_only": ("fp8", 8), "fp4": ("nvfp4", 4), "fp4_kv": ("nvfp4", 4),
    "fp4_mlp_only": ("nvfp4", 4), "weights_int8": ("int8", 8), "weights_kv_int8": ("int8", 8),
    "weights_int4": ("awq", 4), "weights_kv_int4": ("awq", 4), "smooth_quant": ("int8", 8),
}  # fmt: skip
"""`quant_algo` of TensorRT-LLM and `quantization_type` of Baseten's engine builder -> the Job's method and bits."""


def read(document: Document, project: Project) -> Reading:
    """The Job of a TensorRT-LLM server."""
    reader = Server(document, project, ENGINE)
    reader.bind(TABLE.rows)
    told = reader.problems()
    serve = _is_serve(document)
    reader.reading.problems = [item for item in told if item.kind != "unknown-key" or "." in item.key or serve]
    return reader.reading


def _is_serve(document: Document) -> bool:
    """Whether the options are those of `trtllm-serve`: the builder's plugins and a YAML's sections have more."""
    return document.syntax == "flags" and document.root.entry("checkpoint_dir") is None


_SHARE = ("free_gpu_memory_fraction", "kv_cache_free_gpu_memory_fraction", "kv_cache_free_gpu_mem_fraction")
_CACHE = "kv_cache_config"


def _cached(key: str, flag: str = "") -> Say:
    """A key of the cache: of its section in a file of the LLM API, else a flag, which not each has."""

    def say(reading: Reading, value: Any) -> Keys | None:
        if reading.config.syntax != "flags" or reading.config.root.find(_CACHE) is not None:
            return {f"{_CACHE}.{key}": value}
        return {flag: value} if flag else None

    return say


TABLE = Table(
    (
        *server(ENGINE),
        served_model("model", "checkpoint_dir"),
        stored_dtype("dtype", Default(None, f"auto, the checkpoint's own: default of {ENGINE.upstream}"), back=NEVER),
        *quantization(QUANTIZATIONS, ("quant_config.quant_algo", "quantization", "quantization_type")),
        *degrees(
            Key("parallelism.tensor", ("tensor_parallel_size", "tp_size", "tensor_parallel_count"), POSITIVE, 1),
            Key("parallelism.pipeline", ("pipeline_parallel_size", "pp_size"), POSITIVE, 1),
            Key("parallelism.context", ("context_parallel_size", "cp_size"), POSITIVE, 1),
        ),
        Fixed("parallelism.data", 1),
        Key("parallelism.expert", ("moe_expert_parallel_size", "ep_size"), POSITIVE, 1),
        Key("parallelism.expert_tensor", "moe_tensor_parallel_size", POSITIVE, None),
        gpus_of_degrees("tensor x pipeline x context parallel size"),
        Key(
            "inference.max_model_len", ("max_seq_len", "max_decoder_seq_len"), POSITIVE,
            Default(None, "the model's maximum"),
        ),
        Key("inference.max_num_seqs", "max_batch_size", POSITIVE, 2048),
        Key("inference.max_num_batched_tokens", "max_num_tokens", POSITIVE, 8192),
        # what the file says of the cache wins over the flags
        Key("inference.gpu_memory_utilization", (f"{_CACHE}.free_gpu_memory_fraction", *_SHARE), NUMBER, 0.9),
        Key("inference.block_size", (f"{_CACHE}.tokens_per_block", "tokens_per_block"), INTEGER, 32),
        Key(
            "inference.max_total_tokens", f"{_CACHE}.max_tokens", POSITIVE,
            Default(None, "as many as the memory holds"), blank=Default(None, "as many as the memory holds"),
        ),
        cache_dtype((f"{_CACHE}.dtype", "kv_cache_dtype"), default=LEAVE),
        Key(
            "inference.kv_cache_dtype", "quantization_type", TEXT, "auto", {"fp8_kv": "fp8", "fp4_kv": "fp8"}, NEVER,
            blank=Default("auto"),
        ),
        Fixed("inference.enforce_eager", False),
        Fixed("inference.enable_lora", False),
        Fixed("inference.cpu_offload_gb", 0.0),
        Fixed("inference.speculative_model", None),
        Fixed("inference.max_loras", None),
        Fixed("inference.max_lora_rank", None),
        Key("inference.chunked_prefill", ("enable_chunked_prefill", "enable_chunked_context"), FLAG, None),
    ),
    {
        "inference.gpu_memory_utilization": _cached("free_gpu_memory_fraction", _SHARE[0]),
        "inference.kv_cache_dtype": _cached("dtype"),
    },
    spelled=spelled_as(ENGINE),
)  # fmt: skip

FORMAT = Format.of_table(
    ENGINE.name, "TensorRT-LLM server", ENGINE.upstream, read, TABLE,
    "tensor x pipeline x context parallel size",
    serves=True,
)  # fmt: skip
