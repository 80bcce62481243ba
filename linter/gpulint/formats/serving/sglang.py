"""SGLang's server arguments: the flags of `sglang serve` and `sglang.launch_server`, and their `--config` YAML.

Facts from sglang 0.5.23 (`srt/server_args.py`, `srt/arg_groups/fields/*.py`, `srt/server_args_config_parser.py`), read
statically. Defaults that depend on the GPU stay None: the estimator fills them by version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.format import Format, NoJobError
from ..core.keys import load
from .engine_edits import Words
from .server import Engine, Server

if TYPE_CHECKING:
    from ...source.document import Document
    from ...source.edit.replacement import Edit
    from ..core.format import Project, Reading

ENGINE = Engine("sglang", "sglang", "0.5.23", "sglang", prefixes=True)

_SIGNS = frozenset(
    {
        "mem-fraction-static", "disable-radix-cache", "disaggregation-mode", "chunked-prefill-size", "tp-size",
        "cuda-graph-max-bs", "max-running-requests", "context-length", "schedule-conservativeness", "dp-size",
        "schedule-policy", "enable-dp-attention", "max-prefill-tokens", "ep-size",
    }
)  # fmt: skip
"""Options that SGLang has and other servers have not."""

_KNOWN_SHARE = 0.6

QUANTIZATIONS: dict[str, tuple[str, float | None]] = {
    "awq": ("awq", 4), "awq_marlin": ("awq", 4), "gptq": ("gptq", 4), "gptq_marlin": ("gptq", 4), "fp8": ("fp8", 8),
    "w8a8_fp8": ("fp8", 8), "modelopt": ("fp8", 8), "modelopt_fp8": ("fp8", 8), "modelopt_fp4": ("nvfp4", 4),
    "nvfp4_online": ("nvfp4", 4), "petit_nvfp4": ("nvfp4", 4), "w8a8_int8": ("int8", 8), "mxfp4": ("mxfp4", 4),
    "quark_mxfp4": ("mxfp4", 4), "bitsandbytes": ("bnb-nf4", 4),
}  # fmt: skip
"""`quantization` -> the Job's method and bits. Others (compressed-tensors, gguf ...) are what the checkpoint says."""

_WORDS = Words(
    {
        "parallelism.tensor": "tp-size",
        "parallelism.pipeline": "pp-size",
        "parallelism.data": "dp-size",
        "inference.max_model_len": "context-length",
        "inference.max_num_seqs": "max-running-requests",
        "inference.max_num_batched_tokens": "chunked-prefill-size",
        "inference.gpu_memory_utilization": "mem-fraction-static",
        "inference.kv_cache_dtype": "kv-cache-dtype",
        "inference.enforce_eager": "disable-cuda-graph",
        "inference.cpu_offload_gb": "cpu-offload-gb",
        "inference.max_lora_rank": "max-lora-rank",
        "inference.max_loras": "max-loras-per-batch",
        "weights.dtype": "dtype",
    },
    {"fp8": "fp8"},
    "quantization",
)


def recognise(document: Document) -> bool:
    """A flat YAML file mostly of SGLang's options, one of which is SGLang's own."""
    root = document.root
    if document.syntax != "yaml":
        return False
    keys = [str(key).replace("_", "-") for key in list(root.keys())]
    if not _SIGNS.intersection(keys) or any(entry.value.is_mapping for entry in root.entries()):
        return False
    known = load(ENGINE.name)["properties"]
    return sum(key in known for key in keys) >= _KNOWN_SHARE * len(keys)


_DIFFUSION = frozenset(
    {
        "num-gpus", "ulysses-degree", "ring-degree", "sp-degree", "dit-cpu-offload", "dit-layerwise-offload",
        "text-encoder-cpu-offload", "image-encoder-cpu-offload", "vae-cpu-offload", "pin-cpu-memory",
        "enable-cfg-parallel", "cfg-parallel-size", "use-fsdp-inference", "hsdp-shard-dim", "pipeline-class-name",
        "performance-mode", "text-encoder-precisions", "vae-precision", "dit-precision", "output-path",
    }
)  # fmt: skip
"""Options that `sglang serve` has for diffusion models alone (`multimodal_gen/runtime/server_args/server_args.py`)."""


def read(document: Document, project: Project) -> Reading:
    """The Job of an SGLang server. Raises NoJobError for one of images or videos."""
    names = {str(key).replace("_", "-") for key in document.root.keys()}  # noqa: SIM118  (a Node)
    kind = document.root.get("model-type")
    if names & _DIFFUSION or (kind is not None and kind.value == "diffusion"):
        raise NoJobError(document.path, "sglang serves a diffusion model here, whose memory is not derived")
    server = Server(document, project, ENGINE)
    reading = server.begin()
    builder, arguments = server.builder, server.arguments
    server.set_model("model_path", "model")
    server.set_dtype(None, f"auto, the checkpoint's own: default of {ENGINE.upstream}", "dtype")
    server.set_quantization(QUANTIZATIONS, "quantization")
    _set_parallelism(server)
    server.put("inference.max_model_len", "integer", ("context_length",), None, _MAXIMUM, least=1)
    by_gpu = f"default of {ENGINE.title} {server.version}, by GPU"
    server.put("inference.gpu_memory_utilization", "number", ("mem_fraction_static",), None, by_gpu)
    server.put("inference.max_num_seqs", "integer", ("max_running_requests",), None, "as the cache allows", least=1)
    _set_chunk(server, by_gpu)
    limit = "as many as the memory holds"
    server.put("inference.max_total_tokens", "integer", ("max_total_tokens",), None, limit, least=1)
    server.set_cache_dtype("kv_cache_dtype")
    server.put("inference.block_size", "integer", ("page_size",), None, "by attention kernel", least=1)
    server.put("inference.enforce_eager", "flag", ("disable_cuda_graph",), False)
    _set_graphs(server)
    server.put("inference.cpu_offload_gb", "number", ("cpu_offload_gb",), 0.0)
    adapters = arguments.raw("lora_paths")
    if adapters:
        builder.from_entry("inference.enable_lora", True, adapters.entry, adapters.key, "it has adapters")
    else:
        server.put("inference.enable_lora", "flag", ("enable_lora",), False)
    server.put("inference.max_loras", "integer", ("max_loras_per_batch",), 8, least=1)
    server.put("inference.max_lora_rank", "integer", ("max_lora_rank",), None, "that of the adapters", least=1)
    server.put("inference.speculative_model", "text", ("speculative_draft_model_path",), None)
    server.put("inference.speculative_algorithm", "text", ("speculative_algorithm",), None)
    radix = arguments.flag("disable_radix_cache")
    if radix is not None:
        builder.from_entry("inference.prefix_caching", not radix.value, radix.entry, radix.key)
    else:
        builder.default("inference.prefix_caching", None, "a radix cache")
    server.put("inference.max_states", "integer", ("max_mamba_cache_size",), None, "a share of the cache", least=1)
    server.put("inference.state_ratio", "number", ("mamba_full_memory_ratio",), None, "0.9 to the tokens' 1")
    server.put("inference.attention_backend", "text", ("attention_backend",), None, "by GPU and model")
    server.put("inference.kv_cache_off", "flag", ("prefill_only_disable_kv_cache",), False)
    builder.default("inference.chunked_prefill", None)
    reading.problems = server.problems()
    return reading


_MAXIMUM = f"the model's maximum: default of {ENGINE.upstream}"


def _set_parallelism(server: Server) -> None:
    """GPUs: tensor x pipeline x data parallel size; data parallel attention lies within the ranks of TP."""
    shared = server.arguments.is_on("enable_dp_attention")
    rows = [("parallelism.tensor", ("tp_size",)), ("parallelism.pipeline", ("pp_size",))]
    if not shared:
        rows.append(("parallelism.data", ("dp_size",)))
    gpus = server.set_degrees(*rows)
    builder = server.builder
    groups = server.arguments.integer("dp_size", least=1)
    if shared:
        builder.derived(
            "parallelism.data", 1, "attention is data parallel within the ranks of TP", "parallelism.tensor"
        )
    if shared and groups is not None:
        ranks = max(1, builder.job.parallelism.tensor // groups.value)
        note = "ranks that share attention: tensor parallel size / data parallel size"
        builder.from_entry("parallelism.attention_tensor", ranks, groups.entry, groups.key, note)
    else:
        builder.default("parallelism.attention_tensor", None)
    server.put("parallelism.expert", "integer", ("ep_size",), 1, least=1)
    server.set_gpus(gpus, "tensor x pipeline x data parallel size")


def _set_graphs(server: Server) -> None:
    """The batches that decoding captures: a list, or the largest."""
    builder, path = server.builder, "inference.cudagraph_capture_sizes"
    listed = server.arguments.raw("cuda_graph_bs_decode", "cuda_graph_bs")
    words = listed.value if listed is not None and isinstance(listed.value, list) else []
    sizes = [int(word) for word in map(str, words) if word.isdigit()]
    if listed is not None and isinstance(listed.value, int):
        sizes = [listed.value]
    largest = server.arguments.integer("cuda_graph_max_bs_decode", "cuda_graph_max_bs", least=1)
    if listed is not None and sizes:
        builder.from_entry(path, sizes, listed.entry, listed.key)
    elif largest is not None:
        builder.from_entry(path, [largest.value], largest.entry, largest.key, "the largest")
    else:
        builder.default(path, None, "by GPU")


def _set_chunk(server: Server, note: str) -> None:
    """Tokens of one prefill step; -1 turns chunks off, and `max_prefill_tokens` (16,384) counts."""
    given = server.arguments.integer("chunked_prefill_size")
    if given is not None and given.value <= 0:
        whole = server.arguments.integer("max_prefill_tokens", least=1)
        told = "prompts are not cut; max_prefill_tokens"
        value = whole.value if whole else 16384
        server.builder.from_entry("inference.max_num_batched_tokens", value, given.entry, given.key, told)
    else:
        server.put("inference.max_num_batched_tokens", "integer", ("chunked_prefill_size",), None, note, least=1)


def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
    """The change in this format's words."""
    return _WORDS.describe(reading, changes, ENGINE)


def edits(reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:
    """The edits that make the change."""
    return _WORDS.edits(reading, changes, ENGINE)


FORMAT = Format(
    ENGINE.name, "SGLang server arguments", ENGINE.upstream, recognise, read, describe, edits,
    "tensor x pipeline x data parallel size",
    serves=True,
)  # fmt: skip
