"""Oumi configs for training, inference and evaluation: sections around Transformers' and TRL's trainers.

Facts from oumi 0.9 (`core/configs/params/*.py`, `builders/models.py`, `inference/*.py`), read
statically. What it hands to the Trainer is read as the Trainer reads it (`training_arguments.py`, `trl.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.format import Format, JobBuilder, NoJobError, Reading, written_by
from ..core.interpolation import interpolated
from ..core.keys import key_problems, load
from ..core.sections import Filling, Sections, dtype_of
from ..core.world_size import set_hardware
from .training import train

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import Project

NAME = "oumi"
UPSTREAM = "oumi 0.9"

_REMOTE = frozenset(
    {
        "remote_vllm", "remote", "anthropic", "google_vertex", "google_gemini", "gemini", "deepseek", "fireworks",
        "parasail", "together", "openai", "openrouter", "sambanova", "bedrock", "cerebras", "huggingface_router",
        "hugging_face_router", "lambda",
    }
)  # fmt: skip
"""Engines that ask another machine."""


def recognise(document: Document) -> bool:
    """A YAML file whose model section has Oumi's `model_name`, with a section to train, generate or evaluate, and
    more sections of Oumi's than others.
    """
    root = document.root
    model = root.get("model")
    if document.syntax not in ("yaml", "flags") or model is None or not model.is_mapping:
        return False
    keys = set(root.keys())
    if model.entry("model_name") is None or {"training", "generation", "tasks", "engine"}.isdisjoint(keys):
        return False
    return document.syntax == "flags" or len(keys - load(NAME)["properties"].keys()) * 2 < len(keys)


def read(document: Document, project: Project) -> Reading:
    """The Job of a config. Raises NoJobError where another machine does the work."""
    filled = interpolated(document)
    builder = JobBuilder(filled, UPSTREAM)
    reading = Reading(NAME, UPSTREAM, document, builder.job)
    values = Sections(filled.root)
    if values.is_mapping("training"):
        train(builder, filled, reading, project)
    else:
        _generate(builder, values, project)
    reading.problems = (
        key_problems(document, NAME, known=("config", "nproc-per-node", "nproc_per_node")) + reading.problems
    )
    return reading


def _generate(builder: JobBuilder, values: Sections, project: Project) -> None:
    """Inference or evaluation with Transformers (NATIVE), vLLM or SGLang on this machine."""
    filling = Filling(builder)
    engine = values.text("engine", "inference_engine")
    name = engine.value.lower() if engine else "native"
    if name in _REMOTE:
        raise NoJobError(builder.document.path, f"{name}: the model runs on another machine")
    if name == "llamacpp":
        raise NoJobError(builder.document.path, "llama.cpp is not estimated")
    builder.derived("kind", "inference", "no `training` section")
    builder.derived("objective", "sft", "nothing is trained")
    set_hardware(builder, project, None, sharded=False)
    set_model(filling, values)
    builder.default("weights.quantization", None)
    builder.default("parallelism.pipeline", 1)
    builder.default("inference.version", None)
    if name in ("vllm", "sglang"):
        gpus = builder.job.hardware.gpus or 1
        builder.derived("parallelism.tensor", gpus, "all visible GPUs", "hardware.gpus")
        filling.fill("inference.engine", engine._replace(value=name) if engine else None, name)
        filling.fill("inference.max_model_len", values.integer("model.model_max_length", least=1), None)
        kwargs = "model.model_kwargs"
        filling.fill("inference.gpu_memory_utilization", values.number(f"{kwargs}.gpu_memory_utilization"), 0.9)
        filling.fill("inference.enforce_eager", values.flag(f"{kwargs}.enforce_eager"), name == "vllm")
        filling.fill("inference.max_num_seqs", values.integer(f"{kwargs}.max_num_seqs", least=1), None)
        filling.fill("inference.kv_cache_dtype", None, "auto")
        filling.fill("inference.max_num_batched_tokens", None, None, "the engine's own default")
        return
    shard = values.flag("model.shard_for_eval")
    if shard and shard.value and (builder.job.hardware.gpus or 1) > 1:
        raise NoJobError(builder.document.path, "accelerate spreads its layers over all GPUs")
    builder.default("parallelism.tensor", 1)
    builder.default("inference.engine", "transformers")
    filling.fill("inference.batch_size", values.integer("generation.batch_size", least=1), 1)
    tokens = values.integer("generation.max_new_tokens", least=1)
    filling.fill("inference.new_tokens", tokens, 1024)
    if builder.document.root.entry("tasks") is not None:
        note = "the tasks' samples decide; model_max_length only cuts them"
        builder.default("inference.prompt_length", None, note)
        return
    whole = values.integer("model.model_max_length", least=1)
    new = builder.job.get("inference.new_tokens") or 0
    if whole and whole.value > new:
        filling.put("inference.prompt_length", whole, whole.value - new, "model_max_length less the answer")
    else:
        builder.assumed("inference.prompt_length", 1024, "prompts are not bounded; 1024 tokens")


def set_model(filling: Filling, values: Sections) -> None:
    """Model, dtype and attention; the checkpoint's own dtype unless it is stated."""
    builder = filling.builder
    model = values.text("model.model_name")
    if model:
        filling.put("model", model)
    else:
        builder.assumed("model", None, "no key names the model")
    dtype = values.text("model.torch_dtype_str")
    if dtype and dtype_of(dtype):
        filling.put("weights.dtype", dtype, dtype_of(dtype))
    else:
        builder.default("weights.dtype", None, f"the checkpoint's own: default of {builder.upstream}")
    filling.fill("attention", values.text("model.attn_implementation"), "sdpa", "what Transformers picks")
    filling.fill("compile", values.flag("model.compile"), False)


describe, edits = written_by("oumi.edits")


FORMAT = Format(NAME, "Oumi config", UPSTREAM, recognise, read, describe, edits, "not in the file: the launcher")
