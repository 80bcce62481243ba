"""DeepSpeed and FSDP as `transformers.TrainingArguments` configures them (transformers 5.23.0, accelerate 1.15.0)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import references
from .arguments import Arguments
from .deepspeed_config import apply
from .deepspeed_values import AutoValues, Reference
from .format import Problem
from .training_arguments import mixed_precision
from .world_size import set_hardware

if TYPE_CHECKING:
    from ..source.document import Document
    from .arguments import Given
    from .training_arguments import Run
    from .world_size import Stated


def set_sharding(run: Run, stated: Stated | None = None) -> None:
    """`hardware` and `parallelism`: DeepSpeed from a file or inline, FSDP, else plain data parallelism.

    Call it last: DeepSpeed overrides the dtypes and fills "auto" from what has been read before.
    """
    deepspeed = run.arguments.raw("deepspeed")
    fsdp = _fsdp_options(run)
    sharded = bool(deepspeed and deepspeed.value) or fsdp is not None
    set_hardware(run.builder, run.project, stated, sharded=sharded)
    run.builder.default("parallelism.tensor", 1)
    run.builder.default("parallelism.pipeline", 1)
    run.builder.default("parallelism.context", 1)
    if deepspeed and deepspeed.value:
        run.builder.default("parallelism.fsdp", None)
        set_deepspeed(run, deepspeed)
    elif fsdp is not None:
        run.builder.default("parallelism.zero", None)
        _set_fsdp(run, *fsdp)
    else:
        run.builder.default("parallelism.zero", None)
        run.builder.default("parallelism.fsdp", None)


def set_deepspeed(run: Run, given: Given) -> None:
    """A DeepSpeed config: a path, or a mapping (or JSON text) in its place."""
    if given.entry.value.is_mapping:
        run.reading.problems += apply(run.builder, run.builder.document, auto_values(run), given.key)
        return
    if not isinstance(given.value, str):
        return
    if given.value.lstrip().startswith("{"):
        document = _inline(given, run.builder.document.path)
        if document is not None:
            reference = Reference(given.entry, given.key, "the JSON text")
            run.reading.problems += apply(run.builder, document, auto_values(run), reference=reference)
        return
    found = references.find(given.value, run.builder.document.path, run.project)
    if found.document is None:
        _unresolved(run, given, found)
    elif found.shipped:
        reference = Reference(given.entry, given.key, f"{given.value} as {found.shipped} ships it")
        run.reading.problems += apply(run.builder, found.document, auto_values(run), reference=reference)
    else:
        run.reading.references[given.key] = found.document
        run.reading.problems += apply(run.builder, found.document, auto_values(run))


def _unresolved(run: Run, given: Given, found: references.Found) -> None:
    """A DeepSpeed file that is not there: the ZeRO stage and offload that its name says, if it says any."""
    hint = references.hint_from_name(given.value)
    if hint.stage is None:
        assumption = "nothing is assumed of it"
        run.builder.from_entry("parallelism.zero", None, given.entry, given.key, "the file is missing")
    else:
        offload = " with offload to the CPU" if hint.offload else ""
        assumption = f"stage {hint.stage}{offload}, from its name"
        zero: dict[str, Any] = {"stage": hint.stage}
        if hint.offload:
            zero["offload_optimizer"] = {"device": "cpu"}
            if hint.stage == 3:
                zero["offload_param"] = {"device": "cpu"}
        config = {"bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}, "zero_optimization": zero}
        document = references.plain_document(config, given.value)
        reference = Reference(given.entry, given.key, f"{given.value}, which is missing: assumed from its name")
        apply(run.builder, document, auto_values(run), reference=reference)
    run.reading.problems.append(
        references.unresolved(given.entry, given.key, given.value, found, assumption)
    )


def auto_values(run: Run) -> AutoValues:
    """What the Trainer puts for "auto" (`trainer_config_process`)."""
    dtype, _ = mixed_precision(run)
    job = run.builder.job
    rate = run.arguments.number("learning_rate")
    decay = run.arguments.number("weight_decay")
    clip = run.arguments.number("max_grad_norm")
    return AutoValues(
        client="transformers",
        micro_batch_size=job.micro_batch_size,
        gradient_accumulation_steps=job.gradient_accumulation_steps,
        world_size=run.project.gpus,
        bf16=dtype == "bfloat16",
        fp16=dtype == "float16",
        hidden_size=None,
        learning_rate=rate.value if rate else None,
        weight_decay=decay.value if decay else None,
        max_grad_norm=clip.value if clip else None,
    )


def _inline(given: Given, path: str) -> Document | None:
    from ..source.document import SourceError
    from ..source.read import parse

    try:
        return parse(given.value, path, "json")
    except SourceError:
        return None


def _fsdp_options(run: Run) -> tuple[Given, list[str]] | None:
    """The `fsdp` argument and its words; None when FSDP is off. `true`, words in a string, or a list of words."""
    given = run.arguments.raw("fsdp")
    if given is None or not given.value:
        return None
    if isinstance(given.value, str):
        words = given.value.lower().replace(",", " ").split()
        return None if words in ([], ["false"], ["none"], ["no"]) else (given, words)
    if isinstance(given.value, list):
        return given, [str(word).lower() for word in given.value]
    return given, []


_SHARDING = {"full_shard", "shard_grad_op", "hybrid_shard", "hybrid_shard_zero2", "no_shard"}


def _set_fsdp(run: Run, given: Given, words: list[str]) -> None:
    """`parallelism.fsdp` from `fsdp` and `fsdp_config` (`_process_fsdp_args`, accelerate's FSDP plugin)."""
    builder = run.builder
    config, source = _fsdp_config(run)
    version = config.integer("version", "fsdp_version", least=1)
    if version and version.value in (1, 2):
        _put(run, source, "parallelism.fsdp.version", version, version.value)
    else:
        builder.default("parallelism.fsdp.version", run.defaults.get("fsdp_version", 2))
    word = next((word for word in words if word in _SHARDING), None)
    reshard = config.raw("reshard_after_forward", "fsdp_reshard_after_forward", "sharding_strategy", "fsdp_sharding_strategy")
    name = str(reshard.value).lower() if reshard else ""
    if reshard and name in _SHARDING:
        _put(run, source, "parallelism.fsdp.sharding", reshard, name)
    elif reshard and name in ("true", "false"):
        _put(run, source, "parallelism.fsdp.sharding", reshard, "full_shard" if name == "true" else "shard_grad_op")
    elif word:
        run.put("parallelism.fsdp.sharding", given, word)
    else:
        run.put("parallelism.fsdp.sharding", given, "full_shard", f"default of {builder.upstream}")
    after = builder.job.get("parallelism.fsdp.sharding") in ("full_shard", "hybrid_shard")
    builder.derived("parallelism.fsdp.reshard_after_forward", after, "follows the sharding", "parallelism.fsdp.sharding")
    offload = config.flag("cpu_offload", "fsdp_cpu_offload", "offload_params", "fsdp_offload_params")
    if offload:
        _put(run, source, "parallelism.fsdp.offload", offload, offload.value)
    elif "offload" in words:
        run.put("parallelism.fsdp.offload", given, value=True)
    else:
        builder.default("parallelism.fsdp.offload", False)
    _set_wrap(run, config, source)
    checkpointing = config.flag("activation_checkpointing", "fsdp_activation_checkpointing")
    if checkpointing and checkpointing.value:
        _put(run, source, "activation_checkpointing", checkpointing, "full")
    efficient = config.flag("cpu_ram_efficient_loading", "fsdp_cpu_ram_efficient_loading")
    if efficient:
        _put(run, source, "parallelism.fsdp.cpu_ram_efficient_loading", efficient, efficient.value)
    else:
        builder.default("parallelism.fsdp.cpu_ram_efficient_loading", False)
    state = config.text("state_dict_type", "fsdp_state_dict_type")
    if state:
        _put(run, source, "parallelism.fsdp.state_dict_type", state, state.value)
    else:
        builder.default("parallelism.fsdp.state_dict_type", "FULL_STATE_DICT")
    _set_mixed(run)


def _set_wrap(run: Run, config: Arguments, source: Document | None) -> None:
    builder = run.builder
    policy = config.text("auto_wrap_policy", "fsdp_auto_wrap_policy")
    names = {"TRANSFORMER_BASED_WRAP": "transformer", "SIZE_BASED_WRAP": "size", "NO_WRAP": "none"}
    if policy and policy.value.upper() in names:
        _put(run, source, "parallelism.fsdp.wrap", policy, names[policy.value.upper()])
    else:
        builder.default("parallelism.fsdp.wrap", "transformer")
    number = config.integer("min_num_params", "fsdp_min_num_params", least=1)
    if number:
        _put(run, source, "parallelism.fsdp.min_num_params", number, number.value)
    classes = config.words("transformer_layer_cls_to_wrap", "fsdp_transformer_layer_cls_to_wrap")
    if classes:
        _put(run, source, "parallelism.fsdp.layer_classes", classes, classes.value)


def _set_mixed(run: Run) -> None:
    """accelerate's FSDP casts in FSDP's own policy and first upcasts trainable parameters to fp32."""
    dtype, given = mixed_precision(run)
    fields = ("param_dtype", "reduce_dtype", "buffer_dtype")
    for name in fields:
        path = f"parallelism.fsdp.mixed_precision.{name}"
        if given:
            run.builder.from_entry(path, dtype, given.entry, given.key)
        else:
            run.builder.default(path, dtype)
    note = "accelerate upcasts trainable parameters to float32 under mixed precision"
    run.builder.derived("parallelism.fsdp.upcast_trainable", dtype is not None, note, "precision.autocast")


def _fsdp_config(run: Run) -> tuple[Arguments, Document | None]:
    """`fsdp_config` as a mapping, and the file it came from when it is a path."""
    given = run.arguments.raw("fsdp_config")
    if given is None or given.value is None:
        return Arguments(None), None
    if given.entry.value.is_mapping:
        return Arguments(given.entry.value, given.key), None
    if not isinstance(given.value, str):
        return Arguments(None), None
    if given.value.lstrip().startswith("{"):
        document = _inline(given, run.builder.document.path)
        return Arguments(document.root if document else None, anchor=given), None
    found = references.find(given.value, run.builder.document.path, run.project)
    if found.document is None or not found.document.roots:
        values = {"path": given.value, "reason": found.reason, "assumption": "the defaults"}
        run.reading.problems.append(Problem("unresolved-reference", given.key, given.entry.value.span, values))
        return Arguments(None), None
    run.reading.references[given.key] = found.document
    return Arguments(found.document.root), found.document


def _put(run: Run, source: Document | None, path: str, given: Given, value: Any) -> None:  # noqa: ANN401
    if source is not None:
        run.builder.from_document(source, path, value, given.entry, given.key)
    else:
        run.builder.from_entry(path, value, given.entry, given.key)
