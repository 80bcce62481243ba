"""LLaMA-Factory runs that do not train: chat and API, benchmark evaluation, prediction, export.

Facts from llamafactory 0.9.5 (`chat/vllm_engine.py`, `chat/sglang_engine.py`, `hparams/generating_args.py`,
`eval/evaluator.py`, `hparams/parser.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream import llamafactory
from ..core.bindings.kinds import FLAG, NUMBER, POSITIVE, TEXT
from ..core.bindings.reader import by_release
from ..core.bindings.rows import NEVER, Default, Derived, Fixed, Key, only
from ..core.bindings.spelling import DTYPES, attention, dtype
from ..core.world_size import set_hardware

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...job.job import Job
    from ..core.bindings.reader import Reader
    from ..core.bindings.rows import Row

UPSTREAM = "llamafactory 0.9.5"

FLASH = attention(
    refuses={"flex", "flex_attention", "xformers", "sage", "te"},
    written={"flash_attention_2": "fa2", "flash_attention_3": "fa3", "eager": "disabled"},
)
"""`flash_attn`."""


def infers(job: Job) -> bool:
    """Whether nothing is trained."""
    return job.kind == "inference"


def _runs(name: str) -> Callable[[Job], bool]:
    return lambda job: infers(job) and job.inference is not None and job.inference.engine == name


def _set_engine(reader: Reader) -> None:
    """An export on the CPU (the default) gets no engine that uses a GPU."""
    device = reader.given(TEXT, "export_device")
    if reader.given(TEXT, "export_dir") and (device is None or device.value == "cpu"):
        usual = f"export_device cpu: default of {UPSTREAM}"
        reader.set("inference.engine", device, "cpu", "the export runs on the CPU" if device else usual)


def _batch(reader: Reader) -> int | Derived:
    """The batch of an evaluation or prediction, or one chat at a time."""
    if "task" in reader.keys:
        return 4
    predicts = "do_predict" in reader.keys or "do_eval" in reader.keys
    return 8 if predicts else Derived(1, "one conversation at a time")


def _set_answer(reader: Reader) -> None:
    if "task" in reader.keys:
        reader.derived("inference.new_tokens", 1, "one answer token a question")


def _server(engine: str, *, length: str, share: str, batch: str, version: str | None) -> tuple[Row, ...]:
    """What an engine of its own is given; the arguments are its keys. Only vLLM's defaults and words are known."""
    options, usual, vllm = f"{engine}_config", Default(None, f"{engine}'s own default"), engine == "vllm"
    back = None if vllm else NEVER
    rows = (
        Fixed("inference.version", Default(version, "the newest that it allows")),
        Key(
            "inference.max_model_len", length, POSITIVE,
            by_release(llamafactory.DEFAULTS, "vllm_maxlen", 4096) if vllm else 4096, back=back,
        ),
        Key(
            "inference.gpu_memory_utilization", share, NUMBER,
            by_release(llamafactory.DEFAULTS, "vllm_gpu_util", 0.7) if vllm else 0.7, back=back,
        ),
        Key("inference.enforce_eager", "vllm_enforce_eager", FLAG, default=False, back=back),
        Key("inference.enable_lora", "adapter_name_or_path", TEXT, False, lambda *_: True, NEVER),
        Key("inference.max_lora_rank", "vllm_max_lora_rank", POSITIVE, 32, back=NEVER),
        Key("inference.kv_cache_dtype", f"{options}.kv_cache_dtype", TEXT, "auto", back=back),
        Key("inference.max_num_seqs", f"{options}.{batch}", POSITIVE, usual, back=back),
        Key("inference.max_num_batched_tokens", f"{options}.max_num_batched_tokens", POSITIVE, usual, back=back),
    )  # fmt: skip
    return only(_runs(engine), *rows)


INFERENCE = (
    *only(
        infers,
        Fixed("objective", Derived("sft", "nothing is trained")),
        lambda reader: set_hardware(reader, reader.project, None, sharded=False),
        _set_engine,
        Key(
            "inference.engine", "infer_backend", TEXT, "transformers", {"vllm": "vllm", "sglang": "sglang"}, NEVER,
            other="transformers",
        ),
        Fixed(
            "parallelism.tensor",
            lambda reader: Derived(reader.job.hardware.gpus or 1, "all visible GPUs", "hardware.gpus"),
            when=_runs("vllm"),
        ),
        Fixed("parallelism.tensor", 1),
        Fixed("parallelism.pipeline", 1),
        Key(
            "weights.dtype", "infer_dtype", dtype(refuses=DTYPES.keys() - {"float16", "bfloat16", "float32"}),
            Default(None, f"the checkpoint's own: default of {UPSTREAM}"), back=NEVER,
        ),
        Key(
            "weights.quantization.method", "quantization_bit", POSITIVE, to={4: "bnb-nf4", 8: "bnb-int8"}, back=NEVER,
        ),
        Key("weights.quantization.bits", "quantization_bit", POSITIVE, to={4: 4, 8: 8}, back=NEVER),
        Fixed(
            "weights.quantization.double_quant", True,
            when=lambda job: infers(job) and job.get("weights.quantization.bits") == 4,
        ),
        Fixed("weights.quantization", None),
        Key("attention", "flash_attn", FLASH, "sdpa", back=NEVER),
    ),
    *_server("vllm", length="vllm_maxlen", share="vllm_gpu_util", batch="max_num_seqs", version="0.11.0"),
    *_server(
        "sglang", length="sglang_maxlen", share="sglang_mem_fraction", batch="max_running_requests", version=None
    ),
    *only(
        _runs("transformers"),
        Key("inference.batch_size", ("batch_size", "per_device_eval_batch_size"), POSITIVE, _batch, back=NEVER),
        Key(
            "inference.prompt_length", "cutoff_len", POSITIVE,
            Default(2048, f"cutoff_len: default of {UPSTREAM}"), back=NEVER,
        ),
        _set_answer,
        Key("inference.new_tokens", "max_new_tokens", POSITIVE, 1024, back=NEVER),
    ),
)  # fmt: skip
