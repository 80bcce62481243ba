"""Oumi configs for training, inference and evaluation: sections around Transformers' and TRL's trainers.

Facts from oumi 0.9 (`core/configs/params/*.py`, `builders/models.py`, `inference/*.py`), read
statically. What it hands to the Trainer is read as the Trainer reads it (`training_arguments.py`, `trl.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.backends.trainer import model
from ..core.bindings.kinds import FLAG, NUMBER, POSITIVE, TEXT, WORD, Unsaid
from ..core.bindings.rows import LEAVE, NEVER, Assumed, Default, Derived, Fixed, Key, Table, Written, only, says_as_is
from ..core.bindings.spelling import DTYPE, attention
from ..core.format import Format, NoJobError, Reading
from ..core.interpolation import interpolated
from ..core.keys import key_problems
from ..core.sections import Renamed
from ..core.world_size import set_hardware
from ..hf_trainer.trainer_reader import TrainerReader
from . import training
from .training import DEFAULTS, NAMES, TRAINING, VERSIONS, trains

if TYPE_CHECKING:
    from ...job.job import Job
    from ...source.document import Document
    from ..core.bindings.reader import Reader
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


def read(document: Document, project: Project) -> Reading:
    """The Job of a config. Raises NoJobError where another machine does the work."""
    filled = interpolated(document)
    reader = TrainerReader(filled, project, NAME, UPSTREAM, checked=document)
    reader.starts(DEFAULTS, Renamed(filled.root, NAMES), launched=_has_training(reader))
    reader.bind(TABLE.rows)
    reader.reading.problems[:0] = key_problems(document, NAME, known=("config", "nproc-per-node", "nproc_per_node"))
    return reader.reading


def _has_training(reader: Reader) -> bool:
    section = reader.keys.raw("training")
    return section is not None and section.entry.value.is_mapping


def _set_kind(reader: Reader) -> None:
    if _has_training(reader):
        reader.derived("kind", "training", "a `training` section")
        reader.versions(VERSIONS, reader.project.versions, f"the newest that {UPSTREAM} allows")
        return
    engine = reader.value(WORD, "engine", "inference_engine", default="native")
    if engine in _REMOTE:
        raise NoJobError(reader.document.path, f"{engine}: the model runs on another machine")
    if engine == "llamacpp":
        raise NoJobError(reader.document.path, "llama.cpp is not estimated")
    reader.derived("kind", "inference", "no `training` section")


def _serves(job: Job) -> bool:
    return job.inference is not None and job.inference.engine in ("vllm", "sglang")


def _set_share(reader: Reader) -> None:
    if reader.on("model.shard_for_eval") and (reader.job.hardware.gpus or 1) > 1:
        raise NoJobError(reader.document.path, "accelerate spreads its layers over all GPUs")
    if reader.document.root.entry("tasks") is not None:
        reader.default("inference.prompt_length", None, "the tasks' samples decide; model_max_length only cuts them")


def _spread(reader: Reader) -> None:
    """`device_map` of one process spreads the layers; of several, each has a whole model (builders/models.py)."""
    if reader.project.launcher is None:
        reader.derived("parallelism.data", 1, "one process")
        reader.bind((Key("parallelism.device_map", "model.device_map", TEXT, "auto"),))


def _prompt(length: int, job: Job) -> int | Unsaid:
    new = job.get("inference.new_tokens") or 0
    return length - new if length > new else Unsaid.OTHER


_KWARGS = "model.model_kwargs"

_INFERENCE = only(
    lambda job: not trains(job),
    Fixed("objective", Derived("sft", "nothing is trained")),
    lambda reader: set_hardware(reader, reader.project, None, sharded=False),
    Key("compile", "model.compile", FLAG, default=False, back=NEVER),
    Fixed("weights.quantization", None),
    Fixed("parallelism.pipeline", 1),
    Fixed("inference.version", None),
    Key(
        "inference.engine", ("engine", "inference_engine"), WORD, "transformers", {"vllm": "vllm", "sglang": "sglang"},
        NEVER,
    ),
    *only(
        _serves,
        Fixed(
            "parallelism.tensor",
            lambda reader: Derived(reader.job.hardware.gpus or 1, "all visible GPUs", "hardware.gpus"),
        ),
        Key("inference.max_model_len", "model.model_max_length", POSITIVE, None),
        Key("inference.gpu_memory_utilization", f"{_KWARGS}.gpu_memory_utilization", NUMBER, 0.9),
        Key(
            "inference.enforce_eager", f"{_KWARGS}.enforce_eager", FLAG, back=NEVER,
            default=lambda reader: reader.job.get("inference.engine") == "vllm",
        ),
        Key("inference.max_num_seqs", f"{_KWARGS}.max_num_seqs", POSITIVE, None, back=NEVER),
        Fixed("inference.kv_cache_dtype", "auto"),
        Fixed("inference.max_num_batched_tokens", Default(None, "the engine's own default")),
    ),
    *only(
        lambda job: not _serves(job),
        _set_share,
        Fixed("parallelism.tensor", 1),
        _spread,
        Key("inference.batch_size", "generation.batch_size", POSITIVE, 1),
        Key("inference.new_tokens", "generation.max_new_tokens", POSITIVE, 1024),
        Key(
            "inference.prompt_length", "model.model_max_length", POSITIVE,
            Assumed(1024, "prompts are not bounded; 1024 tokens"), _prompt, NEVER,
            note="model_max_length less the answer",
        ),
    ),
)  # fmt: skip
"""Inference or evaluation with Transformers (NATIVE), vLLM or SGLang on this machine."""

TABLE = Table(
    (
        _set_kind,
        model("model.model_name"),
        Key(
            "weights.dtype", "model.torch_dtype_str", DTYPE,
            Default(None, f"the checkpoint's own: default of {UPSTREAM}"),
            other=lambda word: Written(None, "the checkpoint's own dtype") if word == "auto" else LEAVE,
        ),
        Key(
            "attention", "model.attn_implementation", attention(any_other=True),
            Default("sdpa", "what Transformers picks"),
        ),
        *_INFERENCE,
        *TRAINING,
    ),
    says={
        "method": training.method,
        "weights.quantization.method": training.quantization,
        "parallelism.fsdp.sharding": training.fsdp,
        "loss.kernel": training.loss,
        "precision.autocast": training.autocast,
        "rl.vllm_gpu_memory_utilization": says_as_is("training.grpo.vllm_gpu_memory_utilization"),
    },
    zero=training.zero,
)  # fmt: skip

FORMAT = Format.of_table(NAME, "Oumi config", UPSTREAM, read, TABLE, "not in the file: the launcher")
