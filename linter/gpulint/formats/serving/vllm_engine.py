"""What vLLM's options mean for a Job (vllm 0.33.0: `engine/arg_utils.py`, `config/*.py`), read statically.

Defaults that depend on the GPU or the model stay None: the engine fills them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ...upstream.behaviour import earlier
from ..core.coercion import as_integer
from ..core.keys import load
from ..core.world_size import set_hardware
from .json_arguments import section
from .server import set_degrees

if TYPE_CHECKING:
    from ..core.arguments import Arguments, Given
    from ..core.format import JobBuilder, Project

NAME = "vllm"
VERSION = "0.33.0"
UPSTREAM = f"vllm {VERSION}"
FLASHINFER = "flashinfer-python"
UTILIZATION = 0.92
"""Default `gpu_memory_utilization` (vllm/config/cache.py)."""

DTYPES = {
    "half": "float16", "float16": "float16", "float": "float32", "float32": "float32", "bfloat16": "bfloat16",
}  # fmt: skip

QUANTIZATIONS: dict[str, tuple[str, float | None]] = {
    "awq": ("awq", 4), "awq_marlin": ("awq", 4), "auto_awq": ("awq", 4), "gptq": ("gptq", 4),
    "gptq_marlin": ("gptq", 4), "auto_gptq": ("gptq", 4), "fp8": ("fp8", 8), "fbgemm_fp8": ("fp8", 8),
    "fp8_per_tensor": ("fp8", 8), "fp8_per_block": ("finegrained-fp8", 8), "fp8_per_channel": ("fp8", 8),
    "mxfp4": ("mxfp4", 4), "gpt_oss_mxfp4": ("mxfp4", 4), "modelopt": ("fp8", 8), "modelopt_fp4": ("nvfp4", 4),
    "nvfp4_per_token": ("nvfp4", 4), "bitsandbytes": ("bnb-nf4", 4), "int8_per_channel_weight_only": ("int8", 8),
}  # fmt: skip
"""`quantization` -> the Job's method and bits. Others (compressed-tensors, quark ...) are what the checkpoint says."""

_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def option(key: str) -> str:
    """The option that a key names: dashes for underscores, and a part of a nested option (`a.b`) left off."""
    return key.partition(".")[0].replace("_", "-")


def human_readable(value: Any) -> int | None:
    """A count as vLLM reads it: 32768, "32k" (32000), "32K" (32768), "25.6k"; None for -1, auto and anything else.

    Source: vllm/utils/argparse_utils.py `human_readable_int_or_auto`.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if value > 0 else None
    if not isinstance(value, str):
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT]?)", value.strip())
    if match is None or len(value) > 40:
        return None
    number, suffix = match.groups()
    if suffix in _DECIMAL:
        return int(float(number) * _DECIMAL[suffix]) or None
    if "." in number:
        return None
    return int(number) * _BINARY.get(suffix, 1) or None


def set_version(builder: JobBuilder, arguments: Arguments, project: Project) -> str:
    """The version that the launcher states, 0.33.0, or the newest that still knows every option of the file."""
    stated = project.versions.get(NAME)
    if stated:
        builder.derived("versions.vllm", stated, "the version that the launcher states")
        builder.derived("versions", builder.job.versions, "the version that the launcher states")
        if FLASHINFER in project.versions:
            builder.derived(f"versions.{FLASHINFER}", project.versions[FLASHINFER], "vLLM's own image brings it")
        return stated
    known = load(NAME)["properties"]
    version, given = VERSION, None
    for name in arguments:
        removed = known.get(option(name), {}).get("x-removed")
        if removed:
            last = removed.partition(";")[0].rpartition(" ")[2]
            if earlier(last, version) != version:
                version, given = last, arguments.raw(name)
    if given:
        builder.from_entry("versions.vllm", version, given.entry, given.key, f"{given.key} was last known to it")
    else:
        builder.default("versions.vllm", version)
    builder.default("versions", builder.job.versions)
    return version


def set_model(builder: JobBuilder, arguments: Arguments) -> None:
    """The served model; None when the command line names it."""
    given = arguments.text("model", "model_tag")
    if given:
        builder.from_entry("model", given.value, given.entry, given.key)
    else:
        builder.assumed("model", None, "the model is on the command line")


def set_weights(builder: JobBuilder, arguments: Arguments) -> None:
    """dtype and quantisation; both the checkpoint's own unless stated."""
    given = arguments.text("dtype")
    if given and given.value in DTYPES:
        builder.from_entry("weights.dtype", DTYPES[given.value], given.entry, given.key)
    elif given:
        builder.from_entry("weights.dtype", None, given.entry, given.key, "the checkpoint's own")
    else:
        builder.default("weights.dtype", None, f"auto, the checkpoint's own: default of {UPSTREAM}")
    named = arguments.text("quantization")
    row = QUANTIZATIONS.get(named.value) if named else None
    if named and row:
        builder.from_entry("weights.quantization.method", row[0], named.entry, named.key)
        builder.from_entry("weights.quantization.bits", row[1], named.entry, named.key)
    elif named:
        builder.from_entry("weights.quantization", None, named.entry, named.key, "as the checkpoint is quantised")
    else:
        builder.default("weights.quantization", None, "as the checkpoint is quantised")


_DEGREES = (
    ("parallelism.tensor", ("tensor_parallel_size",)),
    ("parallelism.pipeline", ("pipeline_parallel_size",)),
    ("parallelism.data", ("data_parallel_size",)),
    ("parallelism.context", ("prefill_context_parallel_size",)),
)


def set_parallelism(builder: JobBuilder, arguments: Arguments, project: Project) -> None:
    """The degrees, each 1 by default; the GPUs are their product where nobody said another number."""
    product = set_degrees(builder, arguments, project, _DEGREES)
    expert = arguments.flag("enable_expert_parallel")
    if expert and expert.value:
        job = builder.job
        degree = job.parallelism.tensor * (job.parallelism.data or 1)
        builder.from_entry("parallelism.expert", degree, expert.entry, expert.key, "tensor x data parallel ranks")
    else:
        builder.default("parallelism.expert", 1)
    set_hardware(builder, project, None, sharded=False)
    if project.gpus is None:
        note = "tensor x pipeline x data parallel size"
        builder.derived("hardware.gpus", product, note, "parallelism.tensor")


def set_engine(builder: JobBuilder, arguments: Arguments, version: str) -> None:
    """Lengths, memory share and cache."""
    length = arguments.raw("max_model_len")
    tokens = human_readable(length.value) if length else None
    blank = arguments.blank("max_model_len")
    if blank:
        builder.assumed("inference.max_model_len", None, f"{blank.value} is filled in when the job starts")
        builder.job.unstated.append("inference.max_model_len")
    elif length and tokens:
        builder.from_entry("inference.max_model_len", tokens, length.entry, length.key)
    elif length and str(length.value).strip().lower() in ("auto", "-1"):
        builder.from_entry("inference.max_model_len", -1, length.entry, length.key, "the longest that fits")
    elif length:
        builder.from_entry("inference.max_model_len", None, length.entry, length.key, "not known")
    else:
        builder.default("inference.max_model_len", None, f"the model's maximum: default of {UPSTREAM}")
    share = arguments.number("gpu_memory_utilization", "device_memory_utilization")
    if share:
        builder.from_entry("inference.gpu_memory_utilization", share.value, share.entry, share.key)
    elif version == VERSION:
        builder.default("inference.gpu_memory_utilization", UTILIZATION)
    else:
        builder.default("inference.gpu_memory_utilization", None, f"default of vllm {version}")
    for path, name, default in (
        ("inference.enforce_eager", "enforce_eager", False),
        ("inference.enable_lora", "enable_lora", False),
        ("inference.chunked_prefill", "enable_chunked_prefill", None),
        ("inference.prefix_caching", "enable_prefix_caching", None),
    ):
        flag = arguments.flag(name)
        if flag:
            builder.from_entry(path, flag.value, flag.entry, flag.key)
        else:
            builder.default(path, default)
    _set_pooling(builder, arguments)
    cache = arguments.text("kv_cache_dtype")
    if cache:
        builder.from_entry("inference.kv_cache_dtype", cache.value, cache.entry, cache.key)
    else:
        builder.default("inference.kv_cache_dtype", "auto")
    _put_size(builder, arguments, "inference.kv_cache_memory_bytes", "kv_cache_memory_bytes")


def set_batches(builder: JobBuilder, arguments: Arguments) -> None:
    """Requests and tokens in a batch, block size, LoRA slots; None where the engine goes by the GPU, and its mode."""
    _put_size(builder, arguments, "inference.max_num_batched_tokens", "max_num_batched_tokens")
    for path, name, default in (
        ("inference.max_num_seqs", "max_num_seqs", None),
        ("inference.block_size", "block_size", None),
        ("inference.max_loras", "max_loras", 1),
        ("inference.max_lora_rank", "max_lora_rank", 16),
    ):
        given = arguments.integer(name, least=1)
        if given:
            builder.from_entry(path, given.value, given.entry, given.key)
        else:
            note = f"default of {UPSTREAM}, by GPU" if default is None else ""
            builder.default(path, default, note)
    mode = arguments.text("performance_mode")
    if mode:
        builder.from_entry("inference.performance_mode", mode.value, mode.entry, mode.key)


_POOLS = {"pooling": True, "generate": False, "draft": False}
_CONVERTS = ("embed", "classify", "reward")
_TASKS = {"generate": False, **dict.fromkeys(("embed", "embedding", "classify", "score", "reward", "encode"), True)}
"""Values of `runner`, `convert` and, up to 0.11, `task` that say which runner it is (config/model.py)."""


def _set_pooling(builder: JobBuilder, arguments: Arguments) -> None:
    runner, convert, task = (arguments.text(name) for name in ("runner", "convert", "task"))
    if runner and runner.value in _POOLS:
        builder.from_entry("inference.pooling", _POOLS[runner.value], runner.entry, runner.key)
    elif convert and convert.value in _CONVERTS:
        builder.from_entry("inference.pooling", True, convert.entry, convert.key)
    elif task and task.value in _TASKS:
        builder.from_entry("inference.pooling", _TASKS[task.value], task.entry, task.key)
    else:
        builder.default("inference.pooling", None, "as the checkpoint is")


def _put_size(builder: JobBuilder, arguments: Arguments, path: str, name: str) -> None:
    given = arguments.raw(name)
    size = human_readable(given.value) if given else None
    if given and size:
        builder.from_entry(path, size, given.entry, given.key)
    else:
        builder.default(path, None, f"default of {UPSTREAM}, by GPU")


def set_extras(builder: JobBuilder, arguments: Arguments) -> None:
    """Weights and cache on the host, speculative model, captured graph sizes."""
    for path, name, default in (
        ("inference.cpu_offload_gb", "cpu_offload_gb", 0.0),
        ("inference.swap_space_gb", "swap_space", None),
    ):
        given = arguments.number(name)
        if given:
            builder.from_entry(path, given.value, given.entry, given.key)
        else:
            builder.default(path, default)
    _set_speculative(builder, arguments)
    _set_modalities(builder, arguments)
    _set_items(builder, arguments)
    _set_compilation(builder, arguments)


_NONE = ("NONE", "0")
"""`CompilationMode` and `CUDAGraphMode`, by name or by number (vllm/config/compilation.py 0.27)."""


def _set_compilation(builder: JobBuilder, arguments: Arguments) -> None:
    """Captured batch sizes and whether anything is compiled, of `compilation_config` or of flags of its own.

    `level` was `mode`'s name before 0.11.1.
    """
    told = section(arguments, "compilation_config")
    mode, graphs = told.get("mode") or told.get("level"), told.get("cudagraph_mode")
    if mode and str(mode.value).upper() in _NONE:
        builder.from_entry("inference.compiles", False, mode.entry, mode.key)
    sizes = _sizes(arguments.raw("cudagraph_capture_sizes", "cuda_graph_sizes"))
    chosen = sizes or _sizes(told.get("cudagraph_capture_sizes"))
    if graphs and str(graphs.value).upper() in _NONE:
        chosen = graphs._replace(value=[])
    if chosen:
        builder.from_entry("inference.cudagraph_capture_sizes", chosen.value, chosen.entry, chosen.key)
    else:
        builder.default("inference.cudagraph_capture_sizes", None)


_MODALITIES = ("image", "video", "audio")


def _set_modalities(builder: JobBuilder, arguments: Arguments) -> None:
    """Modalities whose `limit-mm-per-prompt` is 0; all with `language-model-only`."""
    limits, alone = section(arguments, "limit_mm_per_prompt"), arguments.flag("language_model_only")
    if alone and alone.value:
        builder.from_entry("inference.modalities_off", list(_MODALITIES), alone.entry, alone.key)
        return
    off = [name for name in _MODALITIES if name in limits and _count(limits[name].value) == 0]
    if off:
        given = limits[off[0]]
        builder.from_entry("inference.modalities_off", off, given.entry, given.key)
    else:
        builder.default("inference.modalities_off", None)


def _set_items(builder: JobBuilder, arguments: Arguments) -> None:
    """The most images of a request, the most pixels of each, and whether the profile run leaves them out.

    `max_pixels` of `mm-processor-kwargs` or its `size.longest_edge`, as Qwen's processors read them (vllm
    model_executor/models/qwen2_vl.py `_get_vision_info`).
    """
    skipped = arguments.flag("skip_mm_profiling")
    if skipped:
        builder.from_entry("inference.skip_mm_profiling", skipped.value, skipped.entry, skipped.key)
    limit = section(arguments, "limit_mm_per_prompt").get("image")
    images = _count(limit.value) if limit else None
    if limit and isinstance(images, int) and images > 0:
        builder.from_entry("images", images, limit.entry, limit.key)
    processor = section(arguments, "mm_processor_kwargs")
    given = processor.get("max_pixels") or processor.get("size")
    pixels = given.value.get("longest_edge") if given and isinstance(given.value, dict) else given and given.value
    if given and isinstance(pixels, int) and pixels > 0:
        builder.from_entry("image_pixels", pixels, given.entry, given.key)


def _count(limit: Any) -> Any:
    return limit.get("count") if isinstance(limit, dict) else limit


def _set_speculative(builder: JobBuilder, arguments: Arguments) -> None:
    """`speculative-config`: its `model`, `method` and `num_speculative_tokens`.

    Before 0.8 model and tokens were arguments of their own, `speculative-model` and `num-speculative-tokens`.
    """
    stated, tokens = section(arguments, "speculative_config"), "num_speculative_tokens"
    given: dict[str, Given | None] = {
        "inference.speculative_model": arguments.text("speculative_model") or _word(stated.get("model")),
        "inference.speculative_algorithm": _word(stated.get("method")),
        "inference.speculative_tokens": arguments.integer(tokens, least=1) or _positive(stated.get(tokens)),
    }
    for path, found in given.items():
        if found:
            builder.from_entry(path, found.value, found.entry, found.key)
        else:
            builder.default(path, None)


def _word(given: Given | None) -> Given | None:
    return given if given and isinstance(given.value, str) and given.value.strip() else None


def _positive(given: Given | None) -> Given | None:
    number = as_integer(given.value) if given else None
    return given._replace(value=number) if given and number is not None and number > 0 else None


def _sizes(given: Given | None) -> Given | None:
    sizes = given.value if given and isinstance(given.value, list) else []
    good = [size for size in sizes if isinstance(size, int) and not isinstance(size, bool) and size > 0]
    return given._replace(value=good) if given and good and len(good) == len(sizes) else None
