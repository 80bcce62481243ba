"""LLaMA-Factory runs that do not train: chat and API, benchmark evaluation, prediction, export.

Facts from llamafactory 0.9.5 (`chat/vllm_engine.py`, `chat/sglang_engine.py`, `hparams/generating_args.py`,
`eval/evaluator.py`, `hparams/parser.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream import llamafactory
from ...upstream.behaviour import default_of
from ..core.bindings.spelling import ATTENTION

if TYPE_CHECKING:
    from ..hf_trainer.training_arguments import Run

DTYPES = {"float16": "float16", "bfloat16": "bfloat16", "float32": "float32"}


def read_inference(run: Run) -> None:
    """Fill an inference Job. An export on the CPU (the default) gets no engine that uses a GPU."""
    builder, arguments = run.builder, run.arguments
    builder.derived("kind", "inference", "nothing is trained")
    builder.derived("objective", "sft", "nothing is trained")
    _set_hardware(run)
    _set_weights(run)
    backend = arguments.text("infer_backend")
    export = arguments.text("export_dir")
    device = arguments.text("export_device")
    if export and (device is None or device.value == "cpu"):
        if device:
            run.put("inference.engine", device, "cpu", "the export runs on the CPU")
        else:
            builder.default("inference.engine", "cpu", f"export_device cpu: default of {builder.upstream}")
        return
    if backend and backend.value in ("vllm", "sglang"):
        run.put("inference.engine", backend)
        _set_engine(run, backend.value)
        return
    if backend:
        run.put("inference.engine", backend, "transformers")
    else:
        builder.default("inference.engine", "transformers")
    _set_generation(run)


def _set_hardware(run: Run) -> None:
    from ..core.world_size import set_hardware

    set_hardware(run.builder, run.project, None, sharded=False)
    run.builder.default("parallelism.pipeline", 1)
    backend = run.arguments.text("infer_backend")
    if backend and backend.value == "vllm":
        gpus = run.builder.job.hardware.gpus or 1
        run.builder.derived("parallelism.tensor", gpus, "all visible GPUs", "hardware.gpus")
    else:
        run.builder.default("parallelism.tensor", 1)


def _set_weights(run: Run) -> None:
    builder, arguments = run.builder, run.arguments
    given = arguments.text("infer_dtype")
    if given and given.value in DTYPES:
        run.put("weights.dtype", given, DTYPES[given.value])
    else:
        builder.default("weights.dtype", None, f"the checkpoint's own: default of {builder.upstream}")
    bits = arguments.integer("quantization_bit", least=1)
    if bits and bits.value in (4, 8):
        run.put("weights.quantization.method", bits, "bnb-nf4" if bits.value == 4 else "bnb-int8")
        run.put("weights.quantization.bits", bits)
        if bits.value == 4:
            builder.default("weights.quantization.double_quant", True)
    else:
        builder.default("weights.quantization", None)
    attention = arguments.text("flash_attn")
    if attention and attention.value in ATTENTION:
        run.put("attention", attention, ATTENTION[attention.value])
    else:
        builder.default("attention", "sdpa")


def _set_engine(run: Run, engine: str) -> None:
    builder, arguments = run.builder, run.arguments
    builder.default("inference.version", "0.11.0" if engine == "vllm" else None, "the newest that it allows")
    length = arguments.integer(f"{engine}_maxlen", least=1)
    if length:
        run.put("inference.max_model_len", length)
    else:
        version = run.project.versions.get("llamafactory", "") if engine == "vllm" else ""
        builder.default("inference.max_model_len", default_of(llamafactory.DEFAULTS, version, "vllm_maxlen", 4096))
    share = arguments.number("vllm_gpu_util" if engine == "vllm" else "sglang_mem_fraction")
    if share:
        run.put("inference.gpu_memory_utilization", share)
    else:
        version = run.project.versions.get("llamafactory", "") if engine == "vllm" else ""
        usual = default_of(llamafactory.DEFAULTS, version, "vllm_gpu_util", 0.7)
        builder.default("inference.gpu_memory_utilization", usual)
    eager = arguments.flag("vllm_enforce_eager")
    if eager:
        run.put("inference.enforce_eager", eager)
    else:
        builder.default("inference.enforce_eager", False)
    adapter = arguments.text("adapter_name_or_path")
    if adapter:
        run.put("inference.enable_lora", adapter, value=True)
    else:
        builder.default("inference.enable_lora", False)
    rank = arguments.integer("vllm_max_lora_rank", least=1)
    if rank:
        run.put("inference.max_lora_rank", rank)
    else:
        builder.default("inference.max_lora_rank", 32)
    builder.default("inference.kv_cache_dtype", "auto")
    for name in ("max_num_seqs", "max_num_batched_tokens"):
        builder.default(f"inference.{name}", None, f"{engine}'s own default")
    options = arguments.mapping("vllm_config") if engine == "vllm" else arguments.mapping("sglang_config")
    for path, given in (
        ("inference.kv_cache_dtype", options.text("kv_cache_dtype")),
        ("inference.max_num_seqs", options.integer("max_num_seqs", "max_running_requests", least=1)),
        ("inference.max_num_batched_tokens", options.integer("max_num_batched_tokens", least=1)),
    ):
        if given:
            run.put(path, given)


def _set_generation(run: Run) -> None:
    """Generation with Transformers: one chat at a time, or the batch of an evaluation or prediction."""
    builder, arguments = run.builder, run.arguments
    batch = arguments.integer("batch_size", "per_device_eval_batch_size", least=1)
    if batch:
        run.put("inference.batch_size", batch)
    elif "task" in arguments:
        builder.default("inference.batch_size", 4)
    elif "do_predict" in arguments or "do_eval" in arguments:
        builder.default("inference.batch_size", 8)
    else:
        builder.derived("inference.batch_size", 1, "one conversation at a time")
    prompt = arguments.integer("cutoff_len", least=1)
    if prompt:
        run.put("inference.prompt_length", prompt)
    else:
        builder.default("inference.prompt_length", 2048, f"cutoff_len: default of {builder.upstream}")
    tokens = arguments.integer("max_new_tokens", least=1)
    if "task" in arguments:
        builder.derived("inference.new_tokens", 1, "one answer token a question")
    elif tokens:
        run.put("inference.new_tokens", tokens)
    else:
        builder.default("inference.new_tokens", 1024)
