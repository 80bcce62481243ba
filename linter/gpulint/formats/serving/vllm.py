"""vLLM: the options of `vllm serve` as flags, and its `--config` YAML, which spells them with dashes or underscores.

Facts from vllm 0.33.0 (`engine/arg_utils.py`, `utils/argparse_utils.py`, `config/*.py`), read statically. Defaults that
depend on the GPU or the model stay None: the engine fills them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ...upstream.serving import vllm
from ..core.bindings.kinds import ANYTHING, FLAG, NUMBER, POSITIVE, TEXT, Kind, Unsaid
from ..core.bindings.rows import NEVER, Assumed, Default, Derived, Fixed, Key, Table, Written
from ..core.bindings.spelling import AMP, FLOAT8, GGML, PREFIXED, SHORT, dtype
from ..core.format import Format, Problem, Reading
from ..core.key_changes import as_written
from ..core.keys import key_problems, load, meant
from .json_arguments import section
from .server import Engine, Server, degrees, gpus_of_degrees, quantization, set_version, stored_dtype

if TYPE_CHECKING:
    from ...job.job import Job
    from ...source.document import Document
    from ..core.bindings.reader import Reader
    from ..core.format import Project

NAME = "vllm"
ENGINE = Engine(NAME, NAME, "0.33.0", NAME)
UPSTREAM = ENGINE.upstream
FLASHINFER = "flashinfer-python"
UTILIZATION = 0.92
"""Default `gpu_memory_utilization` (vllm/config/cache.py)."""


def option(key: str) -> str:
    """The option that a key names: dashes for underscores, and a part of a nested option (`a.b`) left off."""
    return key.partition(".")[0].replace("_", "-")


def read(document: Document, project: Project) -> Reading:
    """The Job of a vLLM server."""
    reader = Server(document, project, ENGINE, blank=None)
    reader.bind(TABLE.rows)
    reader.reading.problems = _key_problems(document)
    return reader.reading


_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


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


def _length(value: Any) -> Any:
    """`max_model_len`, -1 where it is the longest that fits."""
    if str(value).strip().lower() in ("auto", "-1"):
        return -1
    return human_readable(value) or Unsaid.OTHER


def _sizes(value: Any) -> Any:
    sizes = value if isinstance(value, list) else []
    good = all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in sizes)
    return sizes if sizes and good else Unsaid.WRONG


def _limit(value: Any) -> Any:
    """The most items of a modality in a request: a count, or a mapping with one."""
    count = value.get("count") if isinstance(value, dict) else value
    return count if isinstance(count, int) and count > 0 else Unsaid.OTHER


def _pixels(value: Any) -> Any:
    """`max_pixels`, or `size` with its `longest_edge` (model_executor/models/qwen2_vl.py `_get_vision_info`)."""
    pixels = value.get("longest_edge") if isinstance(value, dict) else value
    return pixels if isinstance(pixels, int) and pixels > 0 else Unsaid.OTHER


_COUNT = Kind("a count", lambda value: human_readable(value) or Unsaid.WRONG, samples=(1, 2051, 40960))
_LENGTH = Kind("a count, or auto", _length, samples=(-1, 130, 40960))
_SIZES = Kind("a list of whole numbers", _sizes, samples=([1], [3, 7, 130]))
_LIMIT = Kind("a count, or a mapping", _limit, samples=(1, 7))
_PIXELS = Kind("pixels, or a mapping", _pixels, samples=(1003520,))
_DTYPE = dtype(refuses=SHORT | PREFIXED | AMP | GGML | FLOAT8)

_QUANTIZATIONS: dict[str, tuple[str, float | None]] = {
    "awq": ("awq", 4), "awq_marlin": ("awq", 4), "auto_awq": ("awq", 4), "gptq": ("gptq", 4),
    "gptq_marlin": ("gptq", 4), "auto_gptq": ("gptq", 4), "fp8": ("fp8", 8), "fbgemm_fp8": ("fp8", 8),
    "fp8_per_tensor": ("fp8", 8), "fp8_per_block": ("finegrained-fp8", 8), "fp8_per_channel": ("fp8", 8),
    "mxfp4": ("mxfp4", 4), "gpt_oss_mxfp4": ("mxfp4", 4), "modelopt": ("fp8", 8), "modelopt_fp4": ("nvfp4", 4),
    "nvfp4_per_token": ("nvfp4", 4), "bitsandbytes": ("bnb-nf4", 4), "int8_per_channel_weight_only": ("int8", 8),
}  # fmt: skip
"""`quantization` -> the Job's method and bits. Others (compressed-tensors, quark ...) are what the checkpoint says."""

_POOLS = {"pooling": True, "generate": False, "draft": False}
_CONVERTS = dict.fromkeys(("embed", "classify", "reward"), True)
_TASKS = {"generate": False, **dict.fromkeys(("embed", "embedding", "classify", "score", "reward", "encode"), True)}
"""Values of `runner`, `convert` and, up to 0.11, `task` that say which runner it is (config/model.py)."""

_NONE = ("NONE", "0")
"""`CompilationMode` and `CUDAGraphMode`, by name or by number (vllm/config/compilation.py 0.27)."""

_BY_GPU = Default(None, f"default of {UPSTREAM}, by GPU")


def _utilization(reader: Reader) -> Default:
    release = reader.job.versions[NAME]
    return Default(UTILIZATION) if release == ENGINE.version else Default(None, f"default of vllm {release}")


def _experts(on: bool, job: Job) -> Any:
    """The degree of expert parallelism, which is on or off."""
    degree = job.parallelism.tensor * (job.parallelism.data or 1)
    return Written(degree, "tensor x data parallel ranks") if on else Unsaid.OTHER


def _unless_none(value: Any) -> Any:
    def to(mode: Any, _job: Job) -> Any:
        return value if str(mode).upper() in _NONE else Unsaid.OTHER

    return to


def _tokens(length: int, _job: Job) -> Written:
    return Written(length, "the longest that fits" if length == -1 else "")


def _set_kernels(reader: Reader) -> None:
    stated = reader.project.versions
    if stated.get(NAME) and FLASHINFER in stated:
        reader.derived(f"versions.{FLASHINFER}", stated[FLASHINFER], "vLLM's own image brings it")


_MODALITIES = ("image", "video", "audio")


def _set_modalities(reader: Reader) -> None:
    """Modalities whose `limit-mm-per-prompt` is 0; all with `language-model-only`."""
    limits, alone = section(reader.keys, "limit_mm_per_prompt"), reader.given(FLAG, "language_model_only")
    off = [name for name in _MODALITIES if name in limits and _count(limits[name].value) == 0]
    if alone and alone.value:
        reader.set("inference.modalities_off", alone, list(_MODALITIES))
    elif off:
        reader.set("inference.modalities_off", limits[off[0]], off)
    else:
        reader.default("inference.modalities_off", None)


def _count(limit: Any) -> Any:
    return limit.get("count") if isinstance(limit, dict) else limit


def _spelled(reading: Reading, key: str) -> str:
    """An option with the dashes or underscores that the file gives it, or gives most of its keys."""
    written, name = list(reading.config.root.keys()), key.replace("_", "-")
    same = next((found for found in reversed(written) if found.replace("_", "-") == name), None)
    if same:
        return same
    underscores = sum("_" in found and "-" not in found for found in written)
    dashes = sum("-" in found for found in written)
    return key if underscores > dashes else name


def _is_newer(reading: Reading, changes: dict[str, Any]) -> bool:
    """Whether a change asks for what the release that runs cannot do yet."""
    packs = any(path.startswith("weights.quantization") and value for path, value in changes.items())
    return packs and not vllm.QUANTIZES_WHILE_LOADING.at(reading.job.versions.get(vllm.NAME))


TABLE = Table(
    (
        Fixed("kind", Derived("inference", "a vLLM server")),
        Fixed("objective", Derived("sft", "nothing is trained")),
        Fixed("inference.engine", Derived("vllm", "a vLLM server")),
        set_version("versions.vllm"),
        _set_kernels,
        Key("model", ("model", "model_tag"), TEXT, Assumed(None, "the model is on the command line")),
        stored_dtype("dtype", Default(None, f"auto, the checkpoint's own: default of {UPSTREAM}"), _DTYPE),
        *quantization(_QUANTIZATIONS, "quantization", {"fp8": "fp8", "bnb-nf4": "bitsandbytes"}),
        *degrees(
            Key("parallelism.tensor", "tensor_parallel_size", POSITIVE, 1),
            Key("parallelism.pipeline", "pipeline_parallel_size", POSITIVE, 1),
            Key("parallelism.data", "data_parallel_size", POSITIVE, 1),
            Key("parallelism.context", "prefill_context_parallel_size", POSITIVE, 1),
        ),
        Key("parallelism.expert", "enable_expert_parallel", FLAG, 1, _experts),
        gpus_of_degrees("tensor x pipeline x data parallel size"),
        Key(
            "inference.max_model_len", "max_model_len", _LENGTH,
            Default(None, f"the model's maximum: default of {UPSTREAM}"), _tokens, lambda length, _: length,
            other=Written(None, "not known"), null=Written(None, "not known"),
            blank=Assumed(None, "{value} is filled in when the job starts", unstated=True),
        ),
        Key(
            "inference.gpu_memory_utilization", ("gpu_memory_utilization", "device_memory_utilization"), NUMBER,
            _utilization,
        ),
        Key("inference.enforce_eager", "enforce_eager", FLAG, default=False),
        Key("inference.enable_lora", "enable_lora", FLAG, default=False),
        Key("inference.chunked_prefill", "enable_chunked_prefill", FLAG, default=None),
        Key("inference.prefix_caching", "enable_prefix_caching", FLAG, default=None),
        Key("inference.pooling", "runner", TEXT, to=_POOLS),
        Key("inference.pooling", "convert", TEXT, to=_CONVERTS),
        Key("inference.pooling", "task", TEXT, Default(None, "as the checkpoint is"), _TASKS),
        Key("inference.kv_cache_dtype", "kv_cache_dtype", TEXT, "auto"),
        Key("inference.kv_cache_memory_bytes", "kv_cache_memory_bytes", _COUNT, _BY_GPU),
        Key("inference.max_num_batched_tokens", "max_num_batched_tokens", _COUNT, _BY_GPU),
        Key("inference.max_num_seqs", "max_num_seqs", POSITIVE, _BY_GPU),
        Key("inference.block_size", "block_size", POSITIVE, _BY_GPU),
        Key("inference.max_loras", "max_loras", POSITIVE, 1),
        Key("inference.max_lora_rank", "max_lora_rank", POSITIVE, 16),
        Key("inference.performance_mode", "performance_mode", TEXT),
        Key("inference.cpu_offload_gb", "cpu_offload_gb", NUMBER, 0.0),
        Key("inference.swap_space_gb", "swap_space", NUMBER, None),
        # before 0.8 model and tokens were options of their own
        Key("inference.speculative_model", ("speculative_model", "speculative_config.model"), TEXT, None),
        Key("inference.speculative_algorithm", "speculative_config.method", TEXT, None),
        Key(
            "inference.speculative_tokens",
            ("num_speculative_tokens", "speculative_config.num_speculative_tokens"), POSITIVE, None,
        ),
        _set_modalities,
        Key("inference.skip_mm_profiling", "skip_mm_profiling", FLAG),
        Key("images", "limit_mm_per_prompt.image", _LIMIT),
        Key("image_pixels", ("mm_processor_kwargs.max_pixels", "mm_processor_kwargs.size"), _PIXELS),
        # `level` was `mode`'s name before 0.11.1
        Key(
            "inference.compiles", ("compilation_config.mode", "compilation_config.level"), ANYTHING,
            to=_unless_none(value=False), back=NEVER,
        ),
        Key(
            "inference.cudagraph_capture_sizes", "compilation_config.cudagraph_mode", ANYTHING, to=_unless_none([]),
            back=NEVER,
        ),
        Key(
            "inference.cudagraph_capture_sizes",
            ("cudagraph_capture_sizes", "cuda_graph_sizes", "compilation_config.cudagraph_capture_sizes"),
            _SIZES, None,
        ),
    ),
    spelled=_spelled,
    refuses=_is_newer,
    named=lambda reading, keys: as_written(reading.config, keys) or {},
)  # fmt: skip


def _key_problems(document: Document) -> list[Problem]:
    """Unknown options; those spelled with underscores are known too (`FlexibleArgumentParser`)."""
    known = load(NAME)["properties"]
    other = {key for key in set(document.root.keys()) if key not in known and option(key) in known}
    return [_suggested(item, known) for item in key_problems(document, NAME, known=other)]


def _suggested(problem: Problem, known: dict[str, Any]) -> Problem:
    """An unknown option with the one it was meant to be, in the spelling of the file."""
    if problem.kind != "unknown-key" or "_" not in problem.key or problem.values["since"] or problem.values["until"]:
        return problem
    found = meant(option(problem.key), known).replace("-", "_")
    return problem._replace(values={**problem.values, "suggestion": found, "spelling": found})


FORMAT = Format.of_table(
    NAME, "vLLM server config", UPSTREAM, read, TABLE, "tensor x pipeline x data parallel size", serves=True
)
