"""torchtitan TOML, as it was read until February 2026.

Facts from torchtitan 0.2.2 at 238fa9953 (config/job_config.py, train.py, distributed, models/*/infra), from 0.1.0 for
files with `training.compile` and from 0.0.2 at 6a6f755d2 for files with `training.batch_size` and no `[parallelism]`;
read statically. Float32 shards, bf16 in compute, gradients reduced in float32: the mixed precision of FSDP2.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ...source.node import Entry, Node, Span
from ...upstream.torchtitan import FOREACH, ONE_BATCH_A_STEP, ROOTED
from ..core.backends.fsdp import FSDP, may_shard
from ..core.backends.plain import size
from ..core.backends.training_loop import USUAL, pretrains, runs_on
from ..core.bindings.kinds import FLAG, POSITIVE, TEXT, WORD, WORDS, Unsaid
from ..core.bindings.reader import Reader
from ..core.bindings.rows import LEAVE, NEVER, Default, Derived, Fixed, Key, Table, among, only, within
from ..core.bindings.spelling import DTYPE, schedule
from ..core.format import Format, NoJobError, Problem, Reading
from ..core.keys import key_problems
from ..core.sections import Moved, moved
from ..core.world_size import SHARDED_GPUS, Stated, set_hardware
from .model import config_of, families
from .releases import MIDDLE, OLD, REPLICATE, SHARD, UPSTREAM, WITHOUT, places, release_of, version_of

if TYPE_CHECKING:
    from ...job.job import Job
    from ...source.document import Document
    from ..core.format import Project
    from ..core.key_changes import Keys

NAME = "torchtitan"
_AC = "activation_checkpoint"

_PRESET = re.compile(r"preset for (\d+)\s*([AHB]\d{2,3})?\s*GPUs?", re.IGNORECASE)
_GPUS = {"H100": "h100-80gb"}
"""Names that say which GPU it is; an A100 has 40 or 80 GB."""

_CONVERTERS = {
    "float8": "float8", "mx": "mxfp8", "quantize.linear.float8": "float8", "quantize.linear.mx": "mxfp8",
}  # fmt: skip
"""`model.converters` that change the dtype of products."""


def read(document: Document, project: Project) -> Reading:
    """The Job of a pretraining run. Raises NoJobError for models that are no language models of torchtitan's own."""
    release = release_of(document)
    reader = Reader(document, project, NAME, release, keys=Moved(document.root, places(document, release)))
    reader.bind(TABLE.rows)
    reader.reading.problems[:0] = _key_problems(reader)
    return reader.reading


def _key_problems(reader: Reader) -> list[Problem]:
    """Unknown keys; a module of one's own may add fields, so then only what looks like a typo counts.

    No schema has the keys of MIDDLE, of which none is said to be unknown. Words with commas stand for a list:
    `ConfigManager` splits them (torchtitan 0.2.2 `config/manager.py`).
    """
    if reader.upstream == MIDDLE:
        return []
    schema = "torchtitan_argparse" if reader.upstream == OLD else NAME
    problems = [
        item
        for item in key_problems(reader.document, schema, known=("config",))
        if item.kind != "wrong-type" or item.values["expected"] != "a list"
    ]
    if reader.given(TEXT, "job.custom_config_module", "experimental.custom_args_module") is None:
        return problems
    return [item for item in problems if item.kind != "unknown-key" or item.values["suggestion"]]


def _set_model(reader: Reader) -> None:
    family, flavour = reader.value(TEXT, "model.name", default="llama3"), reader.given(TEXT, "model.flavor")
    if family not in families():
        raise NoJobError(reader.document.path, f"model {family}: no language model of torchtitan's own")
    if flavour is None:
        stated = reader.keys.raw("model.flavor") is not None
        reader.assumed("model", None, "model.flavor names no flavour" if stated else "no model.flavor is set")
        return
    model = config_of(family, flavour.value)
    note = f"the sizes of {family} {flavour.value}, as a {model['model_type']} of Transformers" if model else ""
    reader.set("model", flavour, model or f"{family} {flavour.value}", note)


def _set_pipeline(reader: Reader) -> None:
    """Stages of a rank, and the local batch in micro batches of the pipeline."""
    job = reader.job
    word = reader.value(WORD, "parallelism.pipeline_parallel_schedule", default="1f1b")
    layers = job.model.get("num_hidden_layers") if isinstance(job.model, dict) else None
    each = reader.given(POSITIVE, "parallelism.pipeline_parallel_layers_per_stage")
    if each and layers:
        chunks = max(1, -(-(layers + 2) // each.value) // job.parallelism.pipeline)
        reader.set("parallelism.virtual_stages", each, chunks)
    elif word not in ("1f1b", "gpipe"):
        reader.default("parallelism.virtual_stages", 2, "a looped schedule has two stages a rank")
    local = job.micro_batch_size or 1
    micro = min(local, reader.value(POSITIVE, "parallelism.pipeline_parallel_microbatch_size", default=1))
    reader.derived("parallelism.microbatches", max(1, local // micro), "local batch over pipeline micro batches")
    reader.derived("micro_batch_size", micro, "pipeline_parallel_microbatch_size", "micro_batch_size")


def _product(reader: Reader) -> int:
    """The ranks that the stated degrees make, where -1 shards count as one."""
    plan, shards = reader.job.parallelism, reader.value(POSITIVE, SHARD, default=1)
    copies = reader.value(POSITIVE, REPLICATE, default=1)
    return int(shards * copies * plan.tensor * plan.pipeline * plan.context)


def _shards(reader: Reader) -> int:
    """Ranks that divide the weights: -1 is what the GPUs leave over."""
    stated: int = reader.value(POSITIVE, SHARD, default=1)
    return max(1, (reader.job.hardware.gpus or 1) * stated // _product(reader))


def _set_gpus(reader: Reader) -> None:
    """The product of the degrees where it is stated whole; else the GPUs of the header comment; else one node."""
    shard, product, preset, project = reader.given(POSITIVE, SHARD), _product(reader), _preset(reader), reader.project
    stated = None
    if shard:
        stated = Stated(product, shard.entry, "data_parallel_shard_degree", "the product of the degrees")
    elif preset:
        stated = Stated(preset[0], preset[2], "comment", "the header comment")
    set_hardware(reader, project, stated, sharded=True)
    if stated is None and project.gpus is None and product > SHARDED_GPUS:
        reader.assumed("hardware.gpus", product, "the product of the degrees; -1 shards are up to the launch")
    if preset and preset[1] in _GPUS and project.gpu is None:
        reader.from_entry("hardware.gpu", _GPUS[preset[1]], preset[2], "comment", "the header comment")
    if shard and project.gpus not in (None, product) and reader.upstream != OLD:
        other = f"the degrees make {product} ranks of {reader.job.hardware.gpus or 1} GPUs"
        reader.contradiction(shard, other, "torchtitan stops: the degrees must make the world size")


def _preset(reader: Reader) -> tuple[int, str, Entry] | None:
    for comment in reader.document.comments[:8]:
        match = _PRESET.search(comment.text)
        if match:
            node = Node("scalar", None, Span(comment.line, 1, comment.line, 1, 0, 0))
            return int(match[1]), (match[2] or "").upper(), Entry(node, node)
    return None


def _no_fsdp(reader: Reader) -> Any:
    shards = _shards(reader) * reader.job.parallelism.context
    return Derived(None, "one data parallel shard") if shards < 2 else LEAVE


def _outer(reader: Reader) -> Default:
    return Default("root" if ROOTED.at(version_of(reader.upstream)) else "separate", _APPLIED)


def _reshards(policy: str, job: Job) -> bool:
    return policy != "never" and (policy != "default" or job.parallelism.pipeline == 1)


def _is_full(reader: Reader) -> bool:
    fsdp = reader.job.parallelism.fsdp
    return fsdp is not None and bool(fsdp.reshard_after_forward)


def _keeps_last(reader: Reader) -> Any:
    rooted = ROOTED.at(version_of(reader.upstream)) and _is_full(reader)
    return Default(True, "apply_fsdp: FSDP would gather it again at once") if rooted else LEAVE


def _replicas(reader: Reader) -> Any:
    replicate = reader.value(POSITIVE, REPLICATE, default=1)
    note = "replicas of data_parallel_shard_degree ranks"
    return Derived(_shards(reader), note) if replicate > 1 else LEAVE


def _set_batch(reader: Reader) -> None:
    total, job = reader.given(POSITIVE, "training.global_batch_size"), reader.job
    if total is None or ONE_BATCH_A_STEP.at(version_of(reader.upstream)):
        usual = "global_batch_size: that of one step of all ranks"
        reader.default("gradient_accumulation_steps", 1, usual)
        return
    local = (job.micro_batch_size or 1) * (job.parallelism.microbatches or 1)
    ranks = _shards(reader) * reader.value(POSITIVE, REPLICATE, default=1)
    steps = max(1, total.value // (local * ranks))
    reader.set("gradient_accumulation_steps", total, steps, f"over {ranks} ranks of {local} rows")


def _converted(names: list[str], _job: Job) -> Any:
    return next((_CONVERTERS[name] for name in reversed(names) if name in _CONVERTERS), Unsaid.OTHER)


def _set_float8(reader: Reader) -> None:
    on = reader.on("float8.enable_float8_linear") if reader.upstream == OLD else None
    if on and not reader.has_set("precision.compute"):
        reader.set("precision.compute", on, "float8")


def _set_optimizer(reader: Reader) -> None:
    """AdamW, which is fused unless told otherwise; in the argparse days where `fused` is on."""
    if not reader.has_set("optimizer.name"):
        fused = reader.given(FLAG, "optimizer.fused")
        foreach = FOREACH.at(version_of(reader.upstream)) and not (fused and fused.value)
        name = "adamw_torch" if foreach else "adamw_torch_fused"
        reader.set("optimizer.name", reader.given(TEXT, "optimizer.name") or fused, name)


def _set_checkpointing(reader: Reader) -> None:
    """`full`; `selective` by operator ("op": every second product is kept) or every n-th layer."""
    mode, option = reader.given(TEXT, f"{_AC}.mode"), reader.keys.raw(f"{_AC}.selective_ac_option")
    chosen, how = mode.value if mode else "selective", str(option.value) if option else "2"
    by_layer = chosen == "selective" and how.isdigit()
    value = chosen if chosen in ("none", "full") else "full" if by_layer else "selective"
    reader.set("activation_checkpointing", mode, value, "" if mode else "mode selective: every second layer")
    if by_layer:
        reader.set("checkpoint_every", option, max(1, int(how[:6])))
    elif value == "selective":
        reader.derived("checkpoint_policy", "every_second_matmul", "selective by operator", "activation_checkpointing")


def _set_compile(reader: Reader) -> None:
    """The layers and the loss, which `components` names apart since 0.2.

    Before `[parallelism]`, `training.compile` took the loss along from October (e10cb9494) to December 2024, when #755
    turned that off; #1033 of April 2025 turned it on again.
    """
    given, parts = reader.given(FLAG, "compile.enable"), reader.keys.raw("compile.components")
    named = parts.value if parts and isinstance(parts.value, list) else ["model", "loss"]
    whole, old = bool(given and given.value), reader.upstream == OLD
    if given:
        reader.set("compile", given, whole and "model" in named)
    compiled = whole and "loss" in named and not old
    reader.derived("loss.compiled", compiled, "compile.components", "compile" if given else None)
    if whole and old:
        reader.job.unstated.append("loss.compiled")


def _batch(reading: Reading, value: int) -> Keys | None:
    """Pipelines cut the local batch into micro batches of their own."""
    return {"training.local_batch_size": value} if reading.job.parallelism.pipeline == 1 else None


def _checkpointing(_reading: Reading, value: str) -> Keys | None:
    return {f"{_AC}.mode": value} if value in ("none", "full") else None


def _sharding(_reading: Reading, value: str) -> Keys | None:
    """All ranks that no other degree takes; -1 is torchtitan's word for them."""
    return {SHARD: -1, REPLICATE: 1} if value == "full_shard" else None


def _is_newer(reading: Reading, changes: dict[str, Any]) -> bool:
    """Whether the file's release has no key for a part of a change."""
    return any(reading.upstream in WITHOUT.get(path, ()) for path in changes)


_APPLIED = "apply_fsdp of torchtitan/models/*/infra/parallelize.py"

_DEGREES = within(
    "parallelism",
    Key("parallelism.tensor", "tensor_parallel_degree", POSITIVE),
    Key("parallelism.pipeline", "pipeline_parallel_degree", POSITIVE),
    Key("parallelism.context", "context_parallel_degree", POSITIVE),
    Key("parallelism.expert", "expert_parallel_degree", POSITIVE),
    Fixed(
        "parallelism.expert_tensor",
        lambda reader: Derived(
            reader.value(POSITIVE, "parallelism.expert_tensor_parallel_degree", default=1),
            "expert_tensor_parallel_degree", "parallelism.expert",
        ),
        when=lambda job: job.parallelism.expert > 1,
    ),
    Fixed(
        "parallelism.sequence", Derived(True, "the plan shards norms by sequence", "parallelism.tensor"),
        when=lambda job: job.parallelism.tensor > 1,
    ),
    Key("loss.parallel", "disable_loss_parallel", FLAG, to={True: False}),
    *only(
        lambda job: job.parallelism.pipeline > 1,
        Key("parallelism.pipeline_schedule", "pipeline_parallel_schedule", schedule(), "1f1b"),
        _set_pipeline,
    ),
)  # fmt: skip
"""The degrees; with tensor parallelism comes that of sequences."""

_FSDP2 = only(
    may_shard,
    Fixed(f"{FSDP}version", Default(2, _APPLIED)),
    Fixed(f"{FSDP}wrap", Default("transformer", _APPLIED)),
    Fixed(f"{FSDP}outer", _outer),
    Fixed(f"{FSDP}sync_each_batch", Default(True, "train.py never puts the reduction of gradients off")),
    Key(
        f"{FSDP}reshard_after_forward", "parallelism.fsdp_reshard_after_forward", TEXT,
        lambda reader: Default(_reshards("default", reader.job), "default: not with pipeline stages"), _reshards,
    ),
    Fixed(f"{FSDP}keeps_last_layer_gathered", _keeps_last),
    Fixed(
        f"{FSDP}sharding",
        lambda reader: Derived("full_shard" if _is_full(reader) else "shard_grad_op", "fsdp_reshard_after_forward"),
    ),
    Key(f"{FSDP}mixed_precision.param_dtype", "training.mixed_precision_param", DTYPE, "bfloat16"),
    Key(f"{FSDP}mixed_precision.reduce_dtype", "training.mixed_precision_reduce", DTYPE, "float32"),
    Key(f"{FSDP}offload", "training.enable_cpu_offload", FLAG),
    Fixed(f"{FSDP}shard_size", _replicas),
)  # fmt: skip
"""FSDP2 over shards and context parallel ranks, one unit a layer, embedding and head apart.

Until #1094 of July 2025 both were in the root, and the last layer stayed gathered for its backward.
"""

TABLE = Table(
    (
        *runs_on("torchtitan"),
        *pretrains("torchtitan", "a pretraining run"),
        _set_model,
        size("micro_batch_size", "training.local_batch_size", 8),
        size("sequence_length", "training.seq_len", 2048),
        *_DEGREES,
        _set_gpus,
        Fixed("parallelism.fsdp", _no_fsdp),
        *_FSDP2,
        _set_batch,
        Key("weights.dtype", "training.dtype", DTYPE, "float32", back=among("bfloat16", "float32")),
        Fixed(
            "precision.autocast", Default("bfloat16", "without FSDP torchtitan uses autocast (maybe_enable_amp)"),
            when=lambda job: job.parallelism.fsdp is None,
        ),
        Key("precision.compute", "model.converters", WORDS, to=_converted),
        _set_float8,
        Key(
            "optimizer.name", "optimizer.implementation", TEXT,
            to={"fused": "adamw_torch_fused", "foreach": "adamw_torch", "for-loop": "adamw_torch_forloop"},
            other="adamw_torch_fused", back=NEVER,
        ),
        _set_optimizer,
        Key("optimizer.in_backward", "optimizer.early_step_in_backward", FLAG, back=NEVER),
        _set_checkpointing,
        _set_compile,
        Key("compile", "compile.enable", FLAG),
        Fixed("loss.upcast", Default("loss", "cross_entropy_loss makes the logits float32 (components/loss.py)")),
        Fixed("allocator.expandable_segments", Default(True, "run_train.sh sets PYTORCH_CUDA_ALLOC_CONF")),
        *USUAL,
    ),
    says={
        "micro_batch_size": _batch,
        "activation_checkpointing": _checkpointing,
        "parallelism.fsdp.sharding": _sharding,
    },
    total="training.global_batch_size",
    refuses=_is_newer,
    spelled=lambda reading, key: moved(key, places(reading.config, reading.upstream)),
)  # fmt: skip

FORMAT = Format.of_table(
    NAME, "torchtitan config", UPSTREAM, read, TABLE,
    "the product of the degrees, or the GPUs of the header comment",
)  # fmt: skip
