"""GPT-NeoX: YAML of NeoXArgs with the DeepSpeed config inside.

Facts from gpt-neox 2.0 at ea7aefd8 (megatron/neox_arguments/*.py, megatron/tokenizer), read statically. Keys have
dashes or underscores; several files of one run may be joined, so that one file may be a part.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ...source.node import Entry, Node, Span
from ..core.arguments import Arguments
from ..core.backends.gpus import model_ranks
from ..core.backends.plain import size
from ..core.backends.training_loop import USUAL, pretrains, runs_on
from ..core.bindings.kinds import ANYTHING, FLAG, POSITIVE, TEXT
from ..core.bindings.reader import Reader
from ..core.bindings.rows import NEVER, Default, Derived, Fixed, Key, Table
from ..core.bindings.spelling import DTYPE, OPTIMIZERS, optimizer
from ..core.flat_keys import unknown_flat_keys
from ..core.format import Format, NoJobError, Problem, Reading
from ..core.key_changes import OFFLOADS, ZERO
from ..core.world_size import Stated, set_hardware
from ..deepspeed.config import apply
from ..deepspeed.values import AutoValues
from .model import GPT2_VOCABULARY, padded, set_model, sizes_of

if TYPE_CHECKING:
    from ...job.job import Job
    from ...source.document import Document
    from ..core.bindings.rows import Say
    from ..core.format import Project
    from ..core.key_changes import Keys

NAME = "gpt_neox"
UPSTREAM = "gpt-neox 2.0"

_DEEPSPEED = frozenset({"zero_optimization", "fp16", "bf16"})
"""Sections that DeepSpeed is handed."""

_HF_ROWS = 50277
"""Rows of the Pile's tokenizer (20B_tokenizer.json), which HFTokenizer reads."""

_GPUS = re.compile(r"(?:trained|run|train) on (\d{1,5}) (?:gpu|A100|H100|V100)", re.IGNORECASE)
_OPTIMIZER = optimizer(
    refuses=OPTIMIZERS, any_other=True, own={**dict.fromkeys(("adam", "adamw"), "adamw_torch_fused"), "sgd": "sgd"}
)


def _name(key: Any) -> str:
    return str(key).replace("-", "_")


def read(document: Document, project: Project) -> Reading:
    """The Job of a pretraining run. Raises NoJobError for a part of one."""
    keys = Arguments(document.root, dashes=True)
    if "num_layers" not in keys:
        raise NoJobError(document.path, "a part of a GPT-NeoX run: the model stands in another file")
    if not any(name in keys for name in _TRAINING):
        raise NoJobError(document.path, "a part of a GPT-NeoX run: how it trains stands in another file")
    kind = keys.raw("attention_config")
    if kind and any(word in str(kind.value) for word in ("mamba", "rwkv", "gmlp", "sparse")):
        raise NoJobError(document.path, "attention-config has layers that are no plain attention")
    reader = Reader(document, project, NAME, UPSTREAM, keys=keys)
    reader.bind(TABLE.rows)
    reader.reading.problems[:0] = unknown_flat_keys(document, NAME, UPSTREAM, lambda key, *_: key.startswith("_"))
    return reader.reading


_TRAINING = (
    "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "optimizer", "train_iters",
)  # fmt: skip
"""Keys of the half that says how a run trains; a run is started with several files, which `deepy.py` merges."""


def _set_model(reader: Reader) -> None:
    rows = _HF_ROWS if reader.value(TEXT, "tokenizer_type") == "HFTokenizer" else GPT2_VOCABULARY
    divisor = reader.value(POSITIVE, "make_vocab_size_divisible_by", default=128)
    vocabulary = padded(rows, divisor, reader.job.parallelism.tensor)
    sizes = sizes_of(
        reader, gated=reader.value(TEXT, "activation") in ("swiglu", "geglu"),
        tied=not reader.value(FLAG, "no_weight_tying"), learned=reader.value(TEXT, "pos_emb") in (None, "learned"),
        vocabulary=reader.value(POSITIVE, "padded_vocab_size", default=vocabulary), dropout=0.0,
        width="intermediate_size", groups=("num_kv_heads",),
    )  # fmt: skip
    missing = "num-layers, hidden-size or num-attention-heads stands in another file"
    set_model(reader, "num_layers", "neox", sizes, missing)


def _set_gpus(reader: Reader) -> None:
    """num_nodes x num_gpus, or what a comment says ("trained on 64 gpus"), or what makes the batch size."""
    gpus, whole = reader.given(POSITIVE, "num_gpus"), reader.given(POSITIVE, "global_num_gpus")
    stated = _commented(reader.document)
    if whole:
        stated = Stated(whole.value, whole.entry, whole.key)
    elif gpus:
        nodes = reader.value(POSITIVE, "num_nodes", default=1)
        stated = Stated(gpus.value * nodes, gpus.entry, gpus.key, "num_gpus x num_nodes")
    set_hardware(reader, reader.project, stated, sharded=True)


def _commented(document: Document) -> Stated | None:
    for comment in document.comments:
        match = _GPUS.search(comment.text)
        if match:
            place = Node("scalar", None, Span(comment.line, 1, comment.line, 1, 0, 0))
            return Stated(int(match[1]), Entry(place, place), "comment", "the file's comment")
    return None


def _set_steps(reader: Reader) -> None:
    """By the rows of a step, of which each data parallel rank has micro batches."""
    total, rows, world = (
        reader.given(POSITIVE, "train_batch_size"),
        reader.job.micro_batch_size,
        model_ranks(reader.job),
    )
    if total and rows and not reader.has_set("gradient_accumulation_steps"):
        steps = max(1, total.value // rows // world)
        reader.set("gradient_accumulation_steps", total, steps, f"over {world} ranks")


def _set_deepspeed(reader: Reader) -> None:
    """The sections that DeepSpeed gets, read as DeepSpeed reads them."""
    root = Node("mapping", [], reader.document.root.span)
    for entry in reader.document.root.entries():
        name = _name(entry.key.value)
        if name in _DEEPSPEED:
            root.value.append(Entry(Node("scalar", name, entry.key.span, entry.key.raw), entry.value))
    job = reader.job
    values = AutoValues(
        client="", micro_batch_size=job.micro_batch_size, gradient_accumulation_steps=1, world_size=model_ranks(job)
    )
    problems = apply(reader, reader.document._replace(roots=[root]), values)
    reader.reading.problems += [item for item in problems if not _passed_over(item)]


def _passed_over(problem: Problem) -> bool:
    """What DeeperSpeed, the fork of DeepSpeed that gpt-neox pins (requirements.txt: 91d1c55), takes without a word.

    Its precision sections are plain dictionaries, of which no key and no type is checked (`runtime/config.py`
    `get_fp16_enabled`, `get_scalar_param`): pythia's files hold {"fp16": {"fp16": true}}.
    """
    return problem.kind in ("unknown-key", "wrong-type") and problem.key.startswith(("fp16.", "bf16."))


def _set_optimizer(reader: Reader) -> None:
    """`use_bnb_optimizer` puts bitsandbytes' Adam8bit in the place of `Adam`."""
    kind, packed = reader.section("optimizer").given(_OPTIMIZER, "type"), reader.on("use_bnb_optimizer")
    written = str(kind.entry.value.value).lower() if kind else "adam"
    if packed and written == "adam":
        reader.set("optimizer.name", packed, "adamw_bnb_8bit", "bitsandbytes' Adam8bit")
    elif kind:
        reader.set("optimizer.name", kind, "adamw_bnb_8bit" if "8bit" in written else kind.value)


def _set_checkpointing(reader: Reader) -> None:
    """Of a number of layers, in main memory where `checkpoint_in_cpu` says so."""
    given, layers = reader.given(FLAG, "checkpoint_activations"), reader.value(POSITIVE, "checkpoint_num_layers")
    if given is None:
        return
    mode = ("offload" if reader.on("checkpoint_in_cpu") else "full") if given.value else "none"
    note = f"one checkpoint every {layers} layers, counted as one a layer" if layers and layers > 1 else ""
    reader.set("activation_checkpointing", given, mode, note)
    reader.derived("reentrant", True, "DeepSpeed's checkpoint function", "activation_checkpointing")


def _has_half(job: Job) -> bool:
    return job.weights.dtype in ("float16", "bfloat16")


def _checkpointing_keys(_reading: Reading, value: str) -> Keys | None:
    if value not in ("none", "full", "offload"):
        return None
    return {"checkpoint_activations": value != "none", "checkpoint_in_cpu": True if value == "offload" else None}


def _optimizer_keys(reading: Reading, value: str) -> Keys | None:
    """`use_bnb_optimizer` puts bitsandbytes' Adam8bit in the place of `Adam`."""
    kind = reading.config.root.find("optimizer.type")
    adam = kind is None or str(kind.value.value).lower() == "adam"
    return {"use_bnb_optimizer": True} if value == "adamw_8bit" and adam else None


def _offload_keys(section: str) -> Say:
    def say(reading: Reading, value: str) -> Keys | None:
        key = f"zero_optimization.{section}"
        if value == "none":
            return {key: None}
        held = reading.config.root.find(key)
        if held is not None and held.value.is_mapping:
            return {f"{key}.device": value}
        return {key: {"device": value, "pin_memory": True}}

    return say


def _stage_keys(reading: Reading, value: int) -> Keys | None:
    """Stages above 1 do not go with pipelines."""
    fits = value < 2 or reading.job.parallelism.pipeline <= 1
    return {"zero_optimization.stage": value} if fits else None


def _spelled(reading: Reading, key: str) -> str:
    """The key with the dashes that the file gives it, or gives most of its keys."""
    written = [str(name) for name in reading.config.root.keys()]  # noqa: SIM118
    head, dot, tail = key.partition(".")
    same = next((name for name in written if name.replace("-", "_") == head), None)
    dashes = sum("-" in name for name in written) > sum("_" in name for name in written)
    return (same or (head.replace("_", "-") if dashes else head)) + dot + tail


TABLE = Table(
    (
        *runs_on(),
        *pretrains("GPT-NeoX", "a training run of GPT-NeoX"),
        Key("parallelism.tensor", "model_parallel_size", POSITIVE, 1),
        Key("parallelism.pipeline", "pipe_parallel_size", POSITIVE, 1),
        Key("parallelism.sequence", "sequence_parallel", FLAG),
        _set_model,
        _set_gpus,
        size("sequence_length", "seq_length"),
        size("micro_batch_size", ("train_micro_batch_size_per_gpu", "batch_size")),
        Key("gradient_accumulation_steps", ("gradient_accumulation_steps", "gas"), POSITIVE),
        _set_steps,
        Fixed("gradient_accumulation_steps", 1),
        _set_deepspeed,
        Key(
            "weights.dtype", "precision", DTYPE, Default("float32", "neither fp16 nor bf16 is on"), back=NEVER,
            other="float32",
        ),
        Fixed(
            "precision.master_weights", Derived(True, "DeepSpeed keeps fp32 masters", "weights.dtype"), when=_has_half
        ),
        _set_optimizer,
        Fixed("optimizer.name", Default("adamw_torch_fused", "Adam: default of gpt-neox")),
        _set_checkpointing,
        Key(
            "attention", "attention_config", ANYTHING,
            Default("eager", "attention-config global: default of gpt-neox"),
            lambda kind, _: "flash_attention_2" if "flash" in str(kind) else "eager",
        ),
        *USUAL,
    ),
    says={
        "activation_checkpointing": _checkpointing_keys,
        "optimizer.name": _optimizer_keys,
        f"{ZERO}stage": _stage_keys,
        **{path: _offload_keys(section) for path, section in OFFLOADS.items()},
    },
    spelled=_spelled,
)  # fmt: skip

FORMAT = Format.of_table(NAME, "GPT-NeoX config", UPSTREAM, read, TABLE, "num_nodes x num_gpus, or a comment")
