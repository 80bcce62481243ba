"""SGLang's server arguments: the flags of `sglang serve` and `sglang.launch_server`, and their `--config` YAML.

Facts from sglang 0.5.23 (`srt/server_args.py`, `srt/arg_groups/fields/*.py`, `srt/server_args_config_parser.py`), read
statically. Defaults that depend on the GPU stay None: the estimator fills them by version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.bindings.kinds import ANYTHING, FLAG, INTEGER, NUMBER, POSITIVE, TEXT, WHOLE_TEXT, Kind, Unsaid
from ..core.bindings.rows import NEVER, Default, Fixed, Key, Table, Written
from ..core.format import Format, NoJobError
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
    from ..core.bindings.reader import Reader
    from ..core.format import Project, Reading

ENGINE = Engine("sglang", "sglang", "0.5.23", "sglang", prefixes=True)

QUANTIZATIONS: dict[str, tuple[str, float | None]] = {
    "awq": ("awq", 4), "awq_marlin": ("awq", 4), "gptq": ("gptq", 4), "gptq_marlin": ("gptq", 4), "fp8": ("fp8", 8),
    "w8a8_fp8": ("fp8", 8), "modelopt": ("fp8", 8), "modelopt_fp8": ("fp8", 8), "modelopt_fp4": ("nvfp4", 4),
    "nvfp4_online": ("nvfp4", 4), "petit_nvfp4": ("nvfp4", 4), "w8a8_int8": ("int8", 8), "mxfp4": ("mxfp4", 4),
    "quark_mxfp4": ("mxfp4", 4), "bitsandbytes": ("bnb-nf4", 4),
}  # fmt: skip
"""`quantization` -> the Job's method and bits. Others (compressed-tensors, gguf ...) are what the checkpoint says."""


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
    reader = Server(document, project, ENGINE)
    reader.bind(TABLE.rows)
    reader.reading.problems = reader.problems()
    return reader.reading


def _set_parallelism(reader: Reader) -> None:
    """Data parallel attention lies within the ranks of tensor parallelism."""
    if not reader.value(FLAG, "enable_dp_attention"):
        return
    groups = reader.given(POSITIVE, "dp_size")
    reader.bind(degrees(*_MODEL_DEGREES))
    note = "attention is data parallel within the ranks of TP"
    reader.derived("parallelism.data", 1, note, "parallelism.tensor")
    if groups:
        ranks = max(1, reader.job.parallelism.tensor // groups.value)
        note = "ranks that share attention: tensor parallel size / data parallel size"
        reader.set("parallelism.attention_tensor", groups, ranks, note)


_SPANS_THE_RANKS = (
    "deepep", "mooncake", "nixl", "mori", "ascend_fuseep", "flashinfer", "megamoe", "deepep_v2", "pplx",
    "flashinfer_megamoe",
)  # fmt: skip
"""`moe_a2a_backend` with experts over all ranks of tensor parallelism (srt/arg_groups/overrides.py `_a2a_ep_size`)."""


def _set_experts(reader: Reader) -> None:
    """Experts over all ranks of tensor parallelism: with these backends, and flags of releases up to 0.5.4."""
    backend = reader.given(TEXT, "moe_a2a_backend")
    flags = (reader.given(FLAG, name) for name in ("enable_ep_moe", "enable_deepep_moe"))
    given = backend if backend and backend.value in _SPANS_THE_RANKS else next((flag for flag in flags if flag), None)
    if given and given.value:
        ranks = reader.job.parallelism.tensor
        reader.set("parallelism.expert", given, ranks, "the expert parallel size is that of tensor parallelism")


def _set_chunk(reader: Reader) -> None:
    """Tokens of one prefill step; -1 turns chunks off, and `max_prefill_tokens` (16,384) counts."""
    given = reader.given(INTEGER, "chunked_prefill_size")
    if given and given.value <= 0:
        whole = reader.value(POSITIVE, "max_prefill_tokens", default=16384)
        reader.set("inference.max_num_batched_tokens", given, whole, "prompts are not cut; max_prefill_tokens")


def _batches(value: Any) -> Any:
    """The batches that decoding captures: a list, or one."""
    words = value if isinstance(value, list) else []
    return [int(word) for word in map(str, words) if word.isdigit()] or (
        [value] if isinstance(value, int) else Unsaid.WRONG
    )


_BATCHES = Kind("a list of whole numbers", _batches, samples=([1], [3, 7, 130]))


def _by_gpu(reader: Reader) -> Default:
    assert isinstance(reader, Server)
    return Default(None, f"default of {ENGINE.title} {reader.version}, by GPU")


_MODEL_DEGREES = (
    Key("parallelism.tensor", "tp_size", POSITIVE, 1),
    Key("parallelism.pipeline", "pp_size", POSITIVE, 1),
)

TABLE = Table(
    (
        *server(ENGINE),
        served_model("model_path", "model"),
        stored_dtype("dtype", Default(None, f"auto, the checkpoint's own: default of {ENGINE.upstream}")),
        *quantization(QUANTIZATIONS, "quantization", {"fp8": "fp8"}),
        _set_parallelism,
        *degrees(*_MODEL_DEGREES, Key("parallelism.data", "dp_size", POSITIVE, 1)),
        Fixed("parallelism.attention_tensor", None),
        _set_experts,
        Key("parallelism.expert", "ep_size", POSITIVE, 1),
        gpus_of_degrees("tensor x pipeline x data parallel size"),
        Key(
            "inference.max_model_len", "context_length", POSITIVE,
            Default(None, f"the model's maximum: default of {ENGINE.upstream}"),
        ),
        Key("inference.gpu_memory_utilization", "mem_fraction_static", NUMBER, _by_gpu),
        Key("inference.max_num_seqs", "max_running_requests", POSITIVE, Default(None, "as the cache allows")),
        _set_chunk,
        Key("inference.max_num_batched_tokens", "chunked_prefill_size", POSITIVE, _by_gpu),
        Key(
            "inference.max_total_tokens", "max_total_tokens", POSITIVE, Default(None, "as many as the memory holds"),
        ),
        cache_dtype("kv_cache_dtype"),
        Key("inference.block_size", "page_size", POSITIVE, Default(None, "by attention kernel")),
        Key("inference.enforce_eager", "disable_cuda_graph", FLAG, default=False),
        Key("inference.cudagraph_capture_sizes", ("cuda_graph_bs_decode", "cuda_graph_bs"), _BATCHES),
        Key(
            "inference.cudagraph_capture_sizes", ("cuda_graph_max_bs_decode", "cuda_graph_max_bs"), POSITIVE,
            Default(None, "by GPU"), lambda size, _: Written([size], "the largest"), NEVER,
        ),
        Key("inference.cpu_offload_gb", "cpu_offload_gb", NUMBER, 0.0),
        Key("inference.enable_lora", "lora_paths", ANYTHING, to=lambda *_: True, back=NEVER, note="it has adapters"),
        Key("inference.enable_lora", "enable_lora", FLAG, default=False),
        Key("inference.max_loras", "max_loras_per_batch", POSITIVE, 8),
        Key("inference.max_lora_rank", "max_lora_rank", POSITIVE, Default(None, "that of the adapters")),
        Key("inference.speculative_model", "speculative_draft_model_path", WHOLE_TEXT, None),
        Key("inference.speculative_algorithm", "speculative_algorithm", WHOLE_TEXT, None),
        Key(
            "inference.prefix_caching", "disable_radix_cache", FLAG, Default(None, "a radix cache"),
            {True: False, False: True},
        ),
        Key("inference.max_states", "max_mamba_cache_size", POSITIVE, Default(None, "a share of the cache")),
        Key("inference.state_ratio", "mamba_full_memory_ratio", NUMBER, Default(None, "0.9 to the tokens' 1")),
        Key("inference.attention_backend", "attention_backend", WHOLE_TEXT, Default(None, "by GPU and model")),
        Key("inference.kv_cache_off", "prefill_only_disable_kv_cache", FLAG, default=False),
        Fixed("inference.chunked_prefill", None),
    ),
    spelled=spelled_as(ENGINE),
)  # fmt: skip

FORMAT = Format.of_table(
    ENGINE.name, "SGLang server arguments", ENGINE.upstream, read, TABLE,
    "tensor x pipeline x data parallel size",
    serves=True,
)  # fmt: skip
