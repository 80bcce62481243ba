"""TensorRT-LLM: the flags of `trtllm-serve` and `trtllm-build`, and the YAML that `trtllm-serve --config` reads.

Facts from NVIDIA/TensorRT-LLM 1.3 (`commands/serve.py`, `commands/build.py`, `builder.py` BuildConfig, the LLM API's
KvCacheConfig). What the file of `--config` says wins over the flags (`serve.py`, update_llm_args_with_extra_dict).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.arguments import Arguments
from ..core.format import Format
from ..core.keys import load
from .engine_edits import Words
from .server import CACHE_DTYPES, Engine, Server

if TYPE_CHECKING:
    from ...source.document import Document
    from ...source.edit.replacement import Edit
    from ..core.format import Project, Reading

ENGINE = Engine("trtllm", "tensorrt-llm", "1.3", "TensorRT-LLM")

_SECTIONS = frozenset({"kv_cache_config", "cuda_graph_config", "moe_config", "enable_attention_dp"})

QUANTIZATIONS: dict[str, tuple[str, float | None]] = {
    "FP8": ("fp8", 8), "FP8_BLOCK_SCALES": ("finegrained-fp8", 8), "W4A16_AWQ": ("awq", 4), "W4A16_GPTQ": ("gptq", 4),
    "W8A16": ("int8", 8), "NVFP4": ("nvfp4", 4), "W4A8_MXFP4_FP8": ("mxfp4", 4), "W4A16_MXFP4": ("mxfp4", 4),
    "fp8": ("fp8", 8), "fp8_kv": ("fp8", 8), "fp8_mlp_only": ("fp8", 8), "fp4": ("nvfp4", 4), "fp4_kv": ("nvfp4", 4),
    "fp4_mlp_only": ("nvfp4", 4), "weights_int8": ("int8", 8), "weights_kv_int8": ("int8", 8),
    "weights_int4": ("awq", 4), "weights_kv_int4": ("awq", 4), "smooth_quant": ("int8", 8),
}  # fmt: skip
"""`quant_algo` of TensorRT-LLM and `quantization_type` of Baseten's engine builder -> the Job's method and bits."""

_WORDS = Words(
    {
        "parallelism.tensor": "tensor_parallel_size",
        "parallelism.pipeline": "pipeline_parallel_size",
        "inference.max_model_len": "max_seq_len",
        "inference.max_num_seqs": "max_batch_size",
        "inference.max_num_batched_tokens": "max_num_tokens",
        "inference.gpu_memory_utilization": "free_gpu_memory_fraction",
    }
)
_CACHE = {
    "inference.gpu_memory_utilization": "kv_cache_config.free_gpu_memory_fraction",
    "inference.kv_cache_dtype": "kv_cache_config.dtype",
}
"""What a file of the LLM API says in a section."""

_FILE_WORDS = _WORDS._replace(options={**_WORDS.options, **_CACHE})


def recognise(document: Document) -> bool:
    """A YAML or JSON file of the LLM API's arguments, with one of its sections (`kv_cache_config` ...)."""
    keys = set(map(str, document.root.keys()))
    if document.syntax not in ("yaml", "json") or not keys & _SECTIONS:
        return False
    known = load(ENGINE.name)["properties"]
    return sum(key in known for key in keys) >= 0.6 * len(keys)


def read(document: Document, project: Project) -> Reading:
    """The Job of a TensorRT-LLM server."""
    server = Server(document, project, ENGINE)
    reading = server.begin()
    builder, arguments = server.builder, server.arguments
    server.set_model("model", "checkpoint_dir")
    server.set_dtype(None, f"auto, the checkpoint's own: default of {ENGINE.upstream}", "dtype")
    section = arguments.mapping("quant_config")
    if "quant_algo" in section:
        arguments.entries["quantization"] = section.entries["quant_algo"]
    server.set_quantization(QUANTIZATIONS, "quantization", "quantization_type")
    gpus = server.set_degrees(
        ("parallelism.tensor", ("tensor_parallel_size", "tp_size", "tensor_parallel_count")),
        ("parallelism.pipeline", ("pipeline_parallel_size", "pp_size")),
        ("parallelism.context", ("context_parallel_size", "cp_size")),
    )
    builder.default("parallelism.data", 1)
    server.put("parallelism.expert", "integer", ("moe_expert_parallel_size", "ep_size"), 1, least=1)
    server.set_gpus(gpus, "tensor x pipeline x context parallel size")
    names = ("max_seq_len", "max_decoder_seq_len")
    server.put("inference.max_model_len", "integer", names, None, "the model's maximum", least=1)
    server.put("inference.max_num_seqs", "integer", ("max_batch_size",), 2048, least=1)
    server.put("inference.max_num_batched_tokens", "integer", ("max_num_tokens",), 8192, least=1)
    _set_cache(server, arguments.mapping("kv_cache_config"))
    builder.default("inference.enforce_eager", False)
    builder.default("inference.enable_lora", False)
    for path, unsaid in (
        ("inference.cpu_offload_gb", 0.0),
        ("inference.speculative_model", None),
        ("inference.max_loras", None),
        ("inference.max_lora_rank", None),
    ):
        builder.default(path, unsaid)
    flags = ("enable_chunked_prefill", "enable_chunked_context")
    server.put("inference.chunked_prefill", "flag", flags, None)
    told = server.problems()
    reading.problems = [item for item in told if item.kind != "unknown-key" or "." in item.key or _is_serve(document)]
    return reading


def _is_serve(document: Document) -> bool:
    """Whether the options are those of `trtllm-serve`: the builder's plugins and a YAML's sections have more."""
    return document.syntax == "flags" and document.root.entry("checkpoint_dir") is None


def _set_cache(server: Server, section: Arguments) -> None:
    """The share of the free memory, dtype and block of the cache: flags, else `kv_cache_config`."""
    for path, kind, names, inner, default in (
        ("inference.gpu_memory_utilization", "number", _FRACTIONS, "free_gpu_memory_fraction", 0.9),
        ("inference.block_size", "integer", ("tokens_per_block",), "tokens_per_block", 32),
    ):
        given = getattr(section, kind)(inner)
        if given is not None:
            server.builder.from_entry(path, given.value, given.entry, given.key)
        else:
            server.put(path, kind, names, default)
    most = section.integer("max_tokens", least=1)
    if most is not None:
        server.builder.from_entry("inference.max_total_tokens", most.value, most.entry, most.key)
    else:
        server.builder.default("inference.max_total_tokens", None, "as many as the memory holds")
    dtype = section.text("dtype") or server.arguments.text("kv_cache_dtype")
    kind_ = server.arguments.text("quantization_type")
    if dtype is not None:
        value = CACHE_DTYPES.get(dtype.value.lower(), "auto")
        server.builder.from_entry("inference.kv_cache_dtype", value, dtype.entry, dtype.key)
    elif kind_ is not None and kind_.value in ("fp8_kv", "fp4_kv"):
        server.builder.from_entry("inference.kv_cache_dtype", "fp8", kind_.entry, kind_.key)
    else:
        server.builder.default("inference.kv_cache_dtype", "auto")


_FRACTIONS = ("free_gpu_memory_fraction", "kv_cache_free_gpu_memory_fraction", "kv_cache_free_gpu_mem_fraction")


def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
    """The change in this format's words."""
    return _words(reading).describe(reading, changes, ENGINE)


def edits(reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:
    """The edits that make the change."""
    return _words(reading).edits(reading, changes, ENGINE)


def _words(reading: Reading) -> Words:
    stated = reading.config.root.find("kv_cache_config") is not None
    return _FILE_WORDS if stated or reading.config.syntax != "flags" else _WORDS


FORMAT = Format(
    ENGINE.name, "TensorRT-LLM server", ENGINE.upstream, recognise, read, describe, edits,
    "tensor x pipeline x context parallel size",
    serves=True,
)  # fmt: skip
