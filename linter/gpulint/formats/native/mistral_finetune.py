"""mistral-finetune: the YAML of train.py.

Facts from mistral-finetune 1943535 (train.py, `args.py`, `wrapped_model.py` and `mixed_precision.py` of finetune),
read statically. bfloat16 weights, a float32 copy of what is trained, FSDP 1 with one unit a layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.backends.fsdp import FSDP
from ..core.backends.plain import size
from ..core.backends.training_loop import USUAL, runs_on
from ..core.bindings.kinds import ANYTHING, FLAG, NUMBER, POSITIVE, TEXT
from ..core.bindings.reader import Reader
from ..core.bindings.rows import NEVER, Assumed, Default, Derived, Fixed, Key, Table, only
from ..core.format import Format, Reading
from ..core.keys import key_problems
from ..core.world_size import set_hardware

if TYPE_CHECKING:
    from ...job.job import Job
    from ...source.document import Document
    from ..core.format import Project
    from ..core.key_changes import Keys

NAME = "mistral_finetune"
UPSTREAM = "mistral-finetune 1943535"

_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
"""The layers that `maybe_lora` makes, under the names of Transformers."""


def read(document: Document, project: Project) -> Reading:
    """The Job of a fine-tune."""
    reader = Reader(document, project, NAME, UPSTREAM)
    reader.bind(TABLE.rows)
    reader.reading.problems = key_problems(document, NAME)
    return reader.reading


def _has_lora(job: Job) -> bool:
    return job.method == "lora"


def _alpha(reader: Reader) -> Derived:
    rank = reader.job.adapter.r if reader.job.adapter else 0
    return Derived(reader.value(NUMBER, "lora.scaling", default=2.0) * rank, "rank x scaling", "adapter.r")


def _method(reading: Reading, value: str) -> Keys | None:
    if value not in ("full", "lora"):
        return None
    own = {"lora.rank": 16} if value == "lora" and reading.job.method != "lora" else {}
    return {"lora.enable": value == "lora", **own}


_ADAPTER = (
    Key("method", "lora.enable", FLAG, to={False: "full"}, back=NEVER),
    Key(
        "method", "lora", ANYTHING, Default("lora", "lora.enable true: default of LoraArgs"), lambda _, __: "lora",
        NEVER, null="lora",
    ),
    *only(
        _has_lora,
        Fixed("adapter.type", Derived("lora", "LoRALinear", "method")),
        Key("adapter.r", "lora.rank", POSITIVE, 16),
        Fixed("adapter.alpha", _alpha),
        Fixed("adapter.targets", Default(_TARGETS, "maybe_lora of model/transformer.py")),
        Fixed("adapter.dtype", Default("bfloat16", "param_dtype of train.py")),
    ),
)  # fmt: skip
"""LoRA on every linear layer but the head, unless `lora.enable` is false; `scaling` is alpha over rank."""

_WRAPPED = "get_model of wrapped_model.py"

_SHARDING = only(
    lambda job: (job.hardware.gpus or 1) > 1,
    Fixed(f"{FSDP}version", Default(1, _WRAPPED)),
    Fixed(f"{FSDP}sharding", Default("full_shard", _WRAPPED)),
    Fixed(f"{FSDP}wrap", Default("transformer", _WRAPPED)),
    Fixed(f"{FSDP}use_orig_params", False),
    Fixed(f"{FSDP}sync_each_batch", Default(True, "the loop of train.py has no no_sync")),
)

TABLE = Table(
    (
        *runs_on(),
        Fixed("kind", Derived("training", "a run of train.py")),
        Fixed("objective", Derived("sft", "it fine-tunes")),
        Fixed("packing", Derived(True, "samples are put behind each other up to seq_len", "objective")),
        Key("model", "model_id_or_path", TEXT, Assumed(None, "model_id_or_path is to be filled in")),
        lambda reader: set_hardware(reader, reader.project, None, sharded=True),
        *_ADAPTER,
        Fixed("weights.dtype", Default("bfloat16", "param_dtype of train.py")),
        Fixed(
            "precision.master_weights",
            Default(True, "prepare_mixed_precision keeps what is trained in float32"),
        ),
        *_SHARDING,
        size("micro_batch_size", "batch_size", 1),
        size("sequence_length", "seq_len", 2048),
        Key("gradient_accumulation_steps", "num_microbatches", POSITIVE, 1),
        Key(
            "activation_checkpointing", "checkpoint", FLAG, Default("full", "checkpoint true: default of TrainArgs"),
            {True: "full", False: "none"},
        ),
        Fixed("attention", Default("flash_attention_2", "xformers' memory efficient attention")),
        Fixed("loss.upcast", Default("model", "the model returns float32 logits")),
        Fixed("loss.kept", Default(True, "the loop of train.py names the output until the next is there")),
        *USUAL,
    ),
    says={"method": _method},
)  # fmt: skip

FORMAT = Format.of_table(
    NAME, "mistral-finetune config", UPSTREAM, read, TABLE, "not in the file: torchrun"
)  # fmt: skip
