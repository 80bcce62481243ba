"""prime-rl: the TOML of its `rl` and `sft` entry points, and Prime Intellect's hosted training, which runs it.

Facts from prime-rl 0.8.1.dev67 (packages/prime-rl-configs: rl.py, sft.py, trainer.py), read statically. FSDP2 over
float32 weights that are gathered in bfloat16; from 0.6.1 on (c5afcaa2e) layers are compiled and checkpointed by
default, checkpoints are offloaded and so is the optimizer. A stated `versions.prime-rl` has the defaults of that
release. A hosted config (docs.primeintellect.ai/hosted-training) names no GPUs and no precision: the service chooses
both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream.behaviour import default_of
from ...upstream.rl import prime_rl
from ..core.backends.fsdp import FSDP, fsdp2
from ..core.backends.lora import lora
from ..core.backends.training_loop import USUAL, runs_on
from ..core.bindings.kinds import FLAG, POSITIVE, TEXT, Kind, Unsaid
from ..core.bindings.reader import Reader
from ..core.bindings.rows import NEVER, Default, Derived, Fixed, Key, Table, within
from ..core.bindings.spelling import DTYPE, optimizer
from ..core.format import Format, NoJobError, Reading
from ..core.keys import key_problems
from ..core.model_facts import find_model
from ..core.sections import Moved, moved
from ..core.world_size import Stated, set_hardware

if TYPE_CHECKING:
    from typing import Any

    from ...job.job import Job
    from ...source.document import Document
    from ..core.format import Project
    from ..core.key_changes import Keys

NAME = "prime_rl"
_TOOL = "prime-rl"
UPSTREAM = "prime-rl 0.8.1.dev67"

_CHUNK = 8192
"""Tokens of `fused_lm_head_token_chunk_size`."""

_NONE = ("None", "none", False, None)
"""What switches a section off that is on by default."""

_SECTION = Kind("a section, or None", lambda value: value not in _NONE, blank=lambda _: False, samples=(True, False))


def read(document: Document, project: Project) -> Reading:
    """The Job of the trainer. Raises NoJobError for a hosted run: nothing in it says what runs where."""
    root = document.root
    if root.get("env") is not None and root.get("orchestrator") is None:
        raise NoJobError(document.path, "hosted training: Prime Intellect chooses the GPUs")
    reader = Reader(document, project, NAME, UPSTREAM, keys=Moved(root, _places(document)))
    reader.bind(TABLE.rows)
    reader.reading.problems = key_problems(document, NAME)
    return reader.reading


def _places(document: Document) -> dict[str, str]:
    """Sections of the trainer stand at the top in a file of the `sft` entry point."""
    return {} if document.root.get("orchestrator") is not None else {"trainer": ""}


def _is_online(job: Job) -> bool:
    return job.objective == "grpo"


def _default(reader: Reader, name: str, usual: Any) -> Any:
    """A default of the release that the run states, else of the described one."""
    return default_of(prime_rl.DEFAULTS, reader.project.versions.get(_TOOL) or "", name, usual)


def _saves(reader: Reader) -> bool:
    """Whether layers are compiled and checkpointed, and checkpoints and states offloaded, unless told otherwise."""
    return bool(_default(reader, "saving", usual=True))


def _set_objective(reader: Reader) -> None:
    online = reader.document.root.get("orchestrator") is not None
    reader.derived("objective", "grpo" if online else "sft", "`orchestrator`" if online else "the sft entry point")


def _set_head(reader: Reader) -> None:
    """The fused head (layers/lm_head.py): pieces of tokens, before 0.5 of columns; SFT has it from 0.7.1 on."""
    columns = _default(reader, "head", "blocks") == "columns"
    key = f"trainer.model.fused_lm_head_{'' if columns else 'token_'}chunk_size"
    stated = reader.keys.raw(key)
    usual = _default(reader, "chunk", _CHUNK)
    usual = usual if _is_online(reader.job) or _default(reader, "sft_head", usual=True) else None
    if (stated is None and usual is None) or (stated is not None and stated.value == "disabled"):
        reader.derived("loss.upcast", "model", "logits are float32: `cast_float_and_contiguous`")
        return
    reader.default("loss.kernel", "chunked", "the fused head")
    reader.derived("loss.logits", "columns" if columns else "blocks", "the fused head", "loss.kernel")
    reader.bind((Key("loss.chunk", key, POSITIVE, usual or _CHUNK),))


def _set_gpus(reader: Reader) -> None:
    """The GPUs of `deployment` that train."""
    nodes = reader.given(POSITIVE, "deployment.num_train_nodes")
    own = reader.given(POSITIVE, "deployment.num_train_gpus")
    stated: Stated | None = None
    if nodes:
        each = reader.value(POSITIVE, "deployment.gpus_per_node", default=8)
        stated = Stated(nodes.value * each, nodes.entry, nodes.key, "nodes x gpus_per_node", group=True)
        if reader.project.nodes is None:
            reader.set("hardware.nodes", nodes)
    elif own:
        stated = Stated(own.value, own.entry, own.key, group=True)
    set_hardware(reader, reader.project, stated, sharded=False)


def _experts(reader: Reader) -> Any:
    """`ep`, from 0.6.1 on `auto`: up to 8 of the GPUs that a replica is sharded over (`resolve_ep`)."""
    job = reader.job
    code = reader.value(TEXT, "trainer.model.impl", "model.impl")
    if _default(reader, "ep", "auto") != "auto" or code == "hf":
        return 1
    model = find_model(job.model, reader.document.path, reader.project.root)
    if model is None or not model.shape.experts:
        return Default(1, "ep auto: no mixture of experts")
    copies = reader.value(POSITIVE, "trainer.model.dp_replicate", "model.dp_replicate", default=1)
    return Derived(min(max(1, job.world_size // copies), 8), "ep auto: up to 8 of the GPUs", "hardware.gpus")


def _set_checkpointing(reader: Reader) -> None:
    """`ac`, whose checkpoints `ac_offloading` puts into main memory."""
    on = _saves(reader)
    ac, offload = (reader.keys.raw(f"trainer.model.{name}") for name in ("ac", "ac_offloading"))
    mode, moves = reader.given(TEXT, "trainer.model.ac.mode"), offload.value not in _NONE if offload else on
    if ac and ac.value in _NONE:
        reader.set("activation_checkpointing", ac, "none")
    elif mode and mode.value == "selective":
        note = "its targets, counted as attention"
        reader.set("activation_checkpointing", mode, "selective", note)
        reader.derived("checkpoint_policy", "attention", note, "activation_checkpointing")
    elif offload and (not moves or not on):
        reader.set("activation_checkpointing", offload, "offload" if moves else "full")
    elif ac and not on:
        reader.set("activation_checkpointing", ac, "full")
    else:
        note = "ac and ac_offloading: defaults of ModelConfig"
        reader.default("activation_checkpointing", "offload" if on else "none", note)


def _every_layers(every: int, job: Job) -> Any:
    return every if job.activation_checkpointing not in ("none", "selective") else Unsaid.OTHER


def _micro(rows: int, job: Job) -> Any:
    return Unsaid.OTHER if _is_online(job) else rows


def _length(reading: Reading, value: int) -> Keys:
    origin = reading.job.origins["sequence_length"]
    usual = "seq_len" if _is_online(reading.job) else "data.seq_len"
    return {(origin.key if origin.kind == "file" else None) or usual: value}


def _method(reading: Reading, value: str) -> Keys | None:
    return {"trainer.model.lora.rank": 16} if value == "lora" and reading.job.method != "lora" else None


_OPTIMIZER = optimizer(any_other=True)
_KERNELS = {"fa4": "flash_attention_4", "auto": Unsaid.OTHER}

_MODEL = within(
    "trainer.model",
    Key("weights.dtype", "optimization_dtype", DTYPE, Default("float32", "optimization_dtype float32")),
    Fixed(f"{FSDP}sync_each_batch", Default(True, "the trainer never puts the reduction of gradients off")),
    *fsdp2(
        reshard="reshard_after_forward", offload="fsdp_cpu_offload", reduce_dtype="reduce_dtype", note="setup_fsdp"
    ),
    Fixed(
        "optimizer.states_offloaded_between_steps", Derived(False, "fsdp_cpu_offload", f"{FSDP}offload"),
        when=lambda job: job.parallelism.fsdp is not None and job.parallelism.fsdp.offload,
    ),
    Key("optimizer.states_offloaded_between_steps", "optim_cpu_offload", FLAG, _saves),
    Key("method", "lora", _SECTION, "full", {True: "lora"}),
    *lora(rank="lora.rank", alpha="lora.alpha", targets="lora.target_modules", r=16, scale=32.0, cast=False),
    _set_checkpointing,
    Key("checkpoint_every", "ac.freq", POSITIVE, to=_every_layers, back=NEVER),
    Key(
        "compile", "compile", _SECTION, lambda reader: Default(_saves(reader), "compile: default of ModelConfig"),
        null=False,
    ),
    Fixed("loss.compiled", Derived(False, "each layer is compiled, the head is not", "compile")),
)  # fmt: skip
"""FSDP2, one unit a layer; `optim_cpu_offload` keeps states in main memory between steps; each layer is compiled."""

TABLE = Table(
    (
        *runs_on(),
        Fixed("kind", Derived("training", "the trainer of a run")),
        Fixed("framework", Derived(prime_rl.NAME, "code of its own for many models")),
        _set_objective,
        Fixed("packing", Derived(True, "rows are packed up to seq_len", "objective")),
        Key("model", ("trainer.model.name", "model.name"), TEXT),
        _set_gpus,
        Key("parallelism.context", ("trainer.model.cp", "model.cp"), POSITIVE, 1),
        Key("parallelism.expert", ("trainer.model.ep", "model.ep"), POSITIVE, _experts),
        Key(
            "sequence_length", ("trainer.model.seq_len", "seq_len", "data.seq_len"), POSITIVE,
            lambda reader: 2048 if _is_online(reader.job) else 128,
        ),
        Key("micro_batch_size", "data.micro_batch_size", POSITIVE, 1, back=_micro),
        *_MODEL,
        Key("optimizer.name", "trainer.optim.type", _OPTIMIZER, "adamw_torch", back=NEVER),
        _set_head,
        Key(
            "attention", "trainer.model.attn", TEXT, Default("flash_attention_2", "attn auto"),
            lambda word, _: _KERNELS.get(word, word), NEVER,
        ),
        Fixed("rl.vllm", Default("server", "inference has GPUs of its own"), when=_is_online),
        Fixed("rl.reference_model", Default(False, "no KL term"), when=_is_online),
        *USUAL,
    ),
    says={"method": _method, "sequence_length": _length},
    spelled=lambda reading, key: moved(key, _places(reading.config)),
    ignored=frozenset({"gradient_accumulation_steps"}),
)  # fmt: skip

FORMAT = Format.of_table(
    NAME, "prime-rl config", UPSTREAM, read, TABLE,
    "`deployment.num_train_gpus`, or nodes x `gpus_per_node`",
)  # fmt: skip
