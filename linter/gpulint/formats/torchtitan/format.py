"""torchtitan TOML, as it was read until February 2026.

Facts from torchtitan 0.2.2 at 238fa9953 (config/job_config.py, train.py, distributed, models/*/infra), from 0.1.0 for
files with `training.compile` and from 0.0.2 at 6a6f755d2 for files with `training.batch_size` and no `[parallelism]`;
read statically. Float32 shards, bf16 in compute, gradients reduced in float32: the mixed precision of FSDP2.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ...source.node import Entry, Node, Span
from ..core.arguments import Given
from ..core.format import Format, NoJobError, Reading, written_by
from ..core.keys import key_problems
from ..core.native import DTYPES, NativeConfig
from ..core.world_size import SHARDED_GPUS, Stated, set_hardware
from .model import config_of, families

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.arguments import Arguments
    from ..core.format import Project

NAME = "torchtitan"
UPSTREAM = "torchtitan 0.2.2"
MIDDLE = "torchtitan 0.1.0"
"""From `[parallelism]` on (785c34c99, March 2025) until `[compile]` (08b8b244f, August 2025): #1094, which took the
embedding and the head out of FSDP's root, is three weeks older than the latter."""

OLD = "torchtitan 0.0.2"
"""Until `[parallelism]`: the version stood still from April 2024 to June 2025."""

CHUNKS = 8

_PRESET = re.compile(r"preset for (\d+)\s*([AHB]\d{2,3})?\s*GPUs?", re.IGNORECASE)
_GPUS = {"H100": "h100-80gb"}
"""Names that say which GPU it is; an A100 has 40 or 80 GB."""

_CONVERTERS = {
    "float8": "float8", "mx": "mxfp8", "quantize.linear.float8": "float8", "quantize.linear.mx": "mxfp8",
}  # fmt: skip
"""`model.converters` that change the dtype of products."""

_SCHEDULES = {
    "1f1b": "1f1b", "gpipe": "gpipe", "interleaved1f1b": "1f1b", "interleavedzerobubble": "zero_bubble",
    "zbvzerobubble": "zero_bubble", "dualpipev": "dualpipe", "loopedbfs": "gpipe",
}  # fmt: skip


def recognise(document: Document) -> bool:
    """`[model]` with a flavour beside `[training]`."""
    model, training = document.root.get("model"), document.root.get("training")
    if document.syntax not in ("toml", "flags") or model is None or not model.is_mapping:
        return False
    return model.get("flavor") is not None and (document.root.get("job") is not None or training is not None)


def read(document: Document, project: Project) -> Reading:
    """The Job of a pretraining run. Raises NoJobError for models that are no language models of torchtitan's own."""
    release = _release(document)
    old = release == OLD
    config = NativeConfig(NAME, release, document, project, "torchtitan")
    builder = config.builder
    builder.derived("kind", "training", "a pretraining run")
    builder.derived("objective", "pretrain", "torchtitan pretrains")
    builder.derived("packing", True, "rows are cut out of a stream of tokens", "objective")
    _set_model(config)
    _set_lengths(config)
    degrees = _set_parallelism(config, old=old)
    _set_gpus(config, degrees)
    _set_sharding(config, degrees, rooted=release != UPSTREAM)
    _set_batch(config, degrees, old=old)
    _set_precision(config, old=old)
    _set_optimizer(config, old=old)
    _set_checkpointing(config)
    _set_compile(config, release)
    builder.default("allocator.expandable_segments", True, "run_train.sh sets PYTORCH_CUDA_ALLOC_CONF")
    config.fill()
    config.reading.problems[:0] = _key_problems(config, old=old)
    return config.reading


def _release(document: Document) -> str:
    """The release whose keys the file has; with `[compile]` it is a new one, whatever else is left in it."""
    if document.root.get("compile") is not None:
        return UPSTREAM
    if document.root.find("training.batch_size") is not None and document.root.get("parallelism") is None:
        return OLD
    former = ("training.batch_size", "training.compile")
    return MIDDLE if any(document.root.find(key) is not None for key in former) else UPSTREAM


def _key_problems(config: NativeConfig, *, old: bool) -> list[Any]:
    """Unknown keys; a module of one's own may add fields, so then only what looks like a typo counts.

    No schema has the keys of MIDDLE, of which none is said to be unknown.
    """
    if config.reading.upstream == MIDDLE:
        return []
    problems = key_problems(config.document, "torchtitan_argparse" if old else NAME, known=("config",))
    problems = [item for item in problems if not _listed(item)]
    keys = config.keys
    custom = keys.mapping("job").text("custom_config_module") or keys.mapping("experimental").text("custom_args_module")
    if custom is None:
        return problems
    return [item for item in problems if item.kind != "unknown-key" or item.values["suggestion"]]


def _listed(problem: Any) -> bool:
    """Words with commas for a list: `ConfigManager` splits them (torchtitan 0.2.2 `config/manager.py`)."""
    return bool(problem.kind == "wrong-type" and problem.values["expected"] == "a list")


def _set_model(config: NativeConfig) -> None:
    section = config.keys.mapping("model")
    name, flavour = section.text("name"), section.text("flavor")
    family = str(name.value) if name else "llama3"
    if family not in families():
        reason = f"model {family}: no language model of torchtitan's own"
        raise NoJobError(config.document.path, reason)
    if flavour is None:
        stated = section.raw("flavor") is not None
        config.builder.assumed("model", None, "model.flavor names no flavour" if stated else "no model.flavor is set")
        return
    model = config_of(family, flavour.value)
    note = f"the sizes of {family} {flavour.value}, as a {model['model_type']} of Transformers" if model else ""
    config.put("model", flavour, model or f"{family} {flavour.value}", note)


def _set_lengths(config: NativeConfig) -> None:
    training = config.keys.mapping("training")
    name = "batch_size" if training.raw("batch_size") is not None else "local_batch_size"
    config.count("micro_batch_size", training.integer(name, least=1), 8, training.blank(name))
    config.count("sequence_length", training.integer("seq_len", least=1), 2048, training.blank("seq_len"))


def _degree(config: NativeConfig, name: str, section: str, field: str | None = None) -> int:
    given = config.keys.mapping(section).integer(f"{name}_degree")
    if given is None:
        return -1 if name == "data_parallel_shard" else 1
    if field and given.value >= 1:
        config.put(field, given)
    return int(given.value)


def _set_parallelism(config: NativeConfig, *, old: bool) -> dict[str, int]:
    """The degrees; -1 for the shards is what the GPUs leave over. With tensor parallelism comes that of sequences."""
    first, second = ("training", "experimental") if old else ("parallelism", "parallelism")
    degrees = {
        "replicate": _degree(config, "data_parallel_replicate", first),
        "shard": _degree(config, "data_parallel_shard", first),
        "tensor": _degree(config, "tensor_parallel", first, "parallelism.tensor"),
        "pipeline": _degree(config, "pipeline_parallel", second, "parallelism.pipeline"),
        "context": _degree(config, "context_parallel", second, "parallelism.context"),
    }
    expert = 1 if old else _degree(config, "expert_parallel", "parallelism", "parallelism.expert")
    if expert > 1:
        tensor = _degree(config, "expert_tensor_parallel", "parallelism")
        note = "expert_tensor_parallel_degree"
        config.builder.derived("parallelism.expert_tensor", tensor, note, "parallelism.expert")
    if degrees["tensor"] > 1:
        config.builder.derived("parallelism.sequence", True, "the plan shards norms by sequence", "parallelism.tensor")
    section = config.keys.mapping(second)
    off = section.flag("disable_loss_parallel") if not old else None
    if off and off.value:
        config.put("loss.parallel", off, False)
    if degrees["pipeline"] > 1:
        _set_pipeline(config, section, degrees["pipeline"])
    return degrees


def _set_pipeline(config: NativeConfig, section: Arguments, stages: int) -> None:
    builder = config.builder
    schedule = section.text("pipeline_parallel_schedule")
    name = str(schedule.value).lower() if schedule else "1f1b"
    if schedule and name in _SCHEDULES:
        config.put("parallelism.pipeline_schedule", schedule, _SCHEDULES[name])
    else:
        builder.default("parallelism.pipeline_schedule", "1f1b")
    layers = builder.job.model.get("num_hidden_layers") if isinstance(builder.job.model, dict) else None
    each = section.integer("pipeline_parallel_layers_per_stage", least=1)
    if each and layers:
        chunks = max(1, -(-(layers + 2) // each.value) // stages)
        config.put("parallelism.virtual_stages", each, chunks)
    elif name not in ("1f1b", "gpipe"):
        builder.default("parallelism.virtual_stages", 2, "a looped schedule has two stages a rank")
    micro = section.integer("pipeline_parallel_microbatch_size", least=1)
    local = builder.job.micro_batch_size or 1
    size = min(local, micro.value if micro else 1)
    builder.derived("parallelism.microbatches", max(1, local // size), "local batch over pipeline micro batches")
    builder.derived("micro_batch_size", size, "pipeline_parallel_microbatch_size", "micro_batch_size")


def _set_gpus(config: NativeConfig, degrees: dict[str, int]) -> None:
    """The product of the degrees where it is stated whole; else the GPUs of the header comment; else one node."""
    builder = config.builder
    stated = None
    product = 1
    for value in degrees.values():
        product *= max(1, value)
    preset = _preset(config.document)
    if degrees["shard"] > 0:
        section = config.document.root.find("parallelism.data_parallel_shard_degree")
        entry = section or config.document.root.find("training.data_parallel_shard_degree")
        if entry is not None:
            stated = Stated(product, entry, "data_parallel_shard_degree", "the product of the degrees")
    elif preset is not None:
        stated = Stated(preset[0], preset[2].entry, "comment", "the header comment")
    set_hardware(builder, config.project, stated, sharded=True)
    if stated is None and config.project.gpus is None and product > SHARDED_GPUS:
        builder.assumed("hardware.gpus", product, "the product of the degrees; -1 shards are up to the launch")
    if preset is not None and preset[1] in _GPUS and config.project.gpu is None:
        builder.from_entry("hardware.gpu", _GPUS[preset[1]], preset[2].entry, "comment", "the header comment")
    gpus = builder.job.hardware.gpus or 1
    if degrees["shard"] > 0 and gpus != product and config.project.gpus is not None:
        entry = config.document.root.find("parallelism.data_parallel_shard_degree")
        if entry is not None:
            given = Given(degrees["shard"], entry, "parallelism.data_parallel_shard_degree")
            message = "torchtitan stops: the degrees must make the world size"
            config.contradiction(given, f"the degrees make {product} ranks of {gpus} GPUs", message)
    degrees["shard"] = max(1, gpus * max(1, degrees["shard"] if degrees["shard"] > 0 else 1) // product)


def _preset(document: Document) -> tuple[int, str, Given] | None:
    for comment in document.comments[:8]:
        match = _PRESET.search(comment.text)
        if match:
            node = Node("scalar", None, Span(comment.line, 1, comment.line, 1, 0, 0))
            return int(match[1]), (match[2] or "").upper(), Given(int(match[1]), Entry(node, node), "comment")
    return None


def _set_sharding(config: NativeConfig, degrees: dict[str, int], *, rooted: bool) -> None:
    """FSDP2 over shards and context parallel ranks, one unit a layer, embedding and head apart.

    Until #1094 of July 2025 both were in the root (`rooted`), and the last layer stayed gathered for its backward.
    """
    builder = config.builder
    if degrees["shard"] * degrees["context"] < 2:
        builder.derived("parallelism.fsdp", None, "one data parallel shard")
        return
    fsdp = "parallelism.fsdp."
    note = "apply_fsdp of torchtitan/models/*/infra/parallelize.py"
    for name, value in (("version", 2), ("wrap", "transformer"), ("outer", "root" if rooted else "separate")):
        builder.default(f"{fsdp}{name}", value, note)
    builder.default(f"{fsdp}sync_each_batch", True, "train.py never puts the reduction of gradients off")
    section = config.keys.mapping("parallelism")
    reshard = section.text("fsdp_reshard_after_forward")
    policy = reshard.value if reshard else "default"
    keeps = policy == "never" or (policy == "default" and degrees["pipeline"] > 1)
    if reshard:
        config.put(f"{fsdp}reshard_after_forward", reshard, not keeps)
    else:
        builder.default(f"{fsdp}reshard_after_forward", not keeps, "default: not with pipeline stages")
    if rooted and not keeps:
        builder.default(f"{fsdp}keeps_last_layer_gathered", True, "apply_fsdp: FSDP would gather it again at once")
    builder.derived(f"{fsdp}sharding", "shard_grad_op" if keeps else "full_shard", "fsdp_reshard_after_forward")
    training = config.keys.mapping("training")
    for key, name, usual in (
        ("mixed_precision_param", "param_dtype", "bfloat16"),
        ("mixed_precision_reduce", "reduce_dtype", "float32"),
    ):
        given = training.text(key)
        if given and given.value in DTYPES:
            config.put(f"{fsdp}mixed_precision.{name}", given, DTYPES[given.value])
        else:
            builder.default(f"{fsdp}mixed_precision.{name}", usual)
    offload = training.flag("enable_cpu_offload")
    if offload:
        config.put(f"{fsdp}offload", offload)
    if degrees["replicate"] > 1:
        builder.derived(f"{fsdp}shard_size", degrees["shard"], "replicas of data_parallel_shard_degree ranks")


def _set_batch(config: NativeConfig, degrees: dict[str, int], *, old: bool) -> None:
    given = config.keys.mapping("training").integer("global_batch_size", least=1)
    local = config.builder.job.micro_batch_size or 1
    if degrees["pipeline"] > 1:
        local *= config.builder.job.parallelism.microbatches or 1
    ranks = max(1, degrees["shard"]) * max(1, degrees["replicate"])
    if given and not old:
        steps = max(1, given.value // (local * ranks))
        config.put("gradient_accumulation_steps", given, steps, f"over {ranks} ranks of {local} rows")
    else:
        config.builder.default("gradient_accumulation_steps", 1, "global_batch_size: that of one step of all ranks")


def _set_precision(config: NativeConfig, *, old: bool) -> None:
    builder, training = config.builder, config.keys.mapping("training")
    dtype = training.text("dtype")
    if dtype and dtype.value in DTYPES:
        config.put("weights.dtype", dtype, DTYPES[dtype.value])
    else:
        builder.default("weights.dtype", "float32")
    if builder.job.parallelism.fsdp is None:
        builder.default("precision.autocast", "bfloat16", "without FSDP torchtitan uses autocast (maybe_enable_amp)")
    converters = config.keys.mapping("model").words("converters")
    named = converters.value if converters else []
    on = config.keys.mapping("float8").flag("enable_float8_linear") if old else None
    if on and on.value:
        config.put("precision.compute", on, "float8")
    for name in named if converters else ():
        if name in _CONVERTERS and converters:
            config.put("precision.compute", converters, _CONVERTERS[name])


def _set_optimizer(config: NativeConfig, *, old: bool) -> None:
    section = config.keys.mapping("optimizer")
    name, manner = section.text("name"), section.text("implementation")
    fused = section.flag("fused")
    spelled = {"fused": "adamw_torch_fused", "foreach": "adamw_torch", "for-loop": "adamw_torch_forloop"}
    how = manner.value if manner else "fused" if not old or (fused and fused.value) else "foreach"
    value = spelled.get(how, "adamw_torch_fused")
    given = manner or name or fused
    if given:
        config.put("optimizer.name", given, value)
    else:
        config.builder.default("optimizer.name", value)
    early = section.flag("early_step_in_backward")
    if early:
        config.put("optimizer.in_backward", early)


def _set_checkpointing(config: NativeConfig) -> None:
    """`full`; `selective` by operator ("op": every second product is kept) or every n-th layer."""
    section = config.keys.mapping("activation_checkpoint")
    mode, option = section.text("mode"), section.raw("selective_ac_option")
    chosen = mode.value if mode else "selective"
    how = str(option.value) if option else "2"
    field = "activation_checkpointing"
    by_layer = chosen == "selective" and how.isdigit()
    value = chosen if chosen in ("none", "full") else "full" if by_layer else "selective"
    if mode:
        config.put(field, mode, value)
    else:
        config.builder.default(field, value, "mode selective: every second layer")
    if by_layer:
        every = max(1, int(how[:6]))
        if option:
            config.put("checkpoint_every", option, every)
        else:
            config.builder.default("checkpoint_every", every)
    elif value == "selective":
        config.builder.derived("checkpoint_policy", "every_second_matmul", "selective by operator", field)


def _set_compile(config: NativeConfig, release: str) -> None:
    """The layers and the loss, which `components` names apart since 0.2.

    Before `[parallelism]`, `training.compile` took the loss along from October (e10cb9494) to December 2024, when #755
    turned that off; #1033 of April 2025 turned it on again.
    """
    builder = config.builder
    section = config.keys.mapping("compile" if release == UPSTREAM else "training")
    on = section.flag("enable" if release == UPSTREAM else "compile")
    parts = section.raw("components")
    named = parts.value if parts and isinstance(parts.value, list) else ["model", "loss"]
    if on:
        config.put("compile", on, bool(on.value) and "model" in named)
    whole = bool(on and on.value)
    compiled = whole and "loss" in named and release != OLD
    builder.derived("loss.compiled", compiled, "compile.components", "compile" if on else None)
    if whole and release == OLD:
        builder.job.unstated.append("loss.compiled")
    builder.default("loss.upcast", "loss", "cross_entropy_loss makes the logits float32 (components/loss.py)")


describe, edits = written_by("torchtitan.edits")


FORMAT = Format(
    NAME, "torchtitan config", UPSTREAM, recognise, read, describe, edits,
    "the product of the degrees, or the GPUs of the header comment",
)  # fmt: skip
