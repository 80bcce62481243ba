"""GPUs and sharding of an axolotl run: world size, tensor, context and expert parallelism, DeepSpeed, FSDP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...job.job import Fsdp
from ...upstream.axolotl import SHARDS_PACKED
from ..accelerate.launch import launch_of
from ..core.backends.fsdp import FsdpDefaults, Section, apply_fsdp
from ..core.keys import load
from ..core.model_facts import hidden_size
from ..core.world_size import Stated, set_hardware
from ..deepspeed.reference import apply_reference
from ..deepspeed.values import AutoValues
from .config import NAME, UPSTREAM
from .weights import WORDS

if TYPE_CHECKING:
    from ..accelerate.launch import launch_of
    from ..core.arguments import Given
from .config import AxolotlConfig

_DEGREES = (
    ("parallelism.tensor", ("tensor_parallel_size",)),
    ("parallelism.context", ("context_parallel_size", "sequence_parallel_degree")),
    ("parallelism.expert", ("expert_parallel_size",)),
)

_WORLD = ("dp_shard_size", "dp_replicate_size", "tensor_parallel_size", "context_parallel_size")

_FSDP = FsdpDefaults(UPSTREAM, version=1, wrap="transformer", use_orig_params=True, state_dict_type="FULL_STATE_DICT")
"""axolotl pins unversioned configs to FSDP1; the rest are the Trainer's defaults (`_process_fsdp_args`)."""


def set_parallelism(config: AxolotlConfig) -> None:
    """`hardware` and `parallelism`; call it after dtypes, adapter and batch, which DeepSpeed works on."""
    keys, builder = config.keys, config.builder
    for field, names in _DEGREES:
        given = keys.integer(*names, least=1)
        if given:
            config.put(field, given, given.value)
        else:
            builder.default(field, 1)
    if builder.job.parallelism.tensor > 1:
        note = "Transformers' tensor parallel plan gathers the logits"
        builder.derived("loss.parallel", False, note, "parallelism.tensor")
    launch = launch_of(config.reading, config.project)
    own = config.is_fsdp or config.is_deepspeed
    launched = launch is not None and not own and launch.kind in ("DEEPSPEED", "FSDP")
    stated = _stated(config) or (launch.stated if launch is not None else None)
    unknown = launch is not None and not own and launch.unknown
    set_hardware(builder, config.project, stated, sharded=own or launched, unknown=unknown)
    deepspeed = keys.raw("deepspeed")
    if not config.is_fsdp:
        builder.default("parallelism.fsdp", None)
    if config.is_fsdp or not config.is_deepspeed:
        builder.default("parallelism.zero", None)
    if config.is_fsdp:
        _set_fsdp(config)
        if config.is_deepspeed and deepspeed is not None and (legacy := keys.raw("fsdp")) and legacy.value:
            config.contradiction(deepspeed, "fsdp", "axolotl refuses DeepSpeed and FSDP together")
    elif config.is_deepspeed and deepspeed is not None:
        values = _auto_values(config)
        apply_reference(config.reading, builder, deepspeed.entry, deepspeed.key, config.project, values)
    elif launch is not None:
        launch.apply(builder, _auto_values(config), WORDS.get(builder.job.precision.autocast or "", "no"))


def _stated(config: AxolotlConfig) -> Stated | None:
    """The GPUs that the file states: Ray's workers, or data x tensor x context degrees where data is given."""
    keys = config.keys
    workers = keys.integer("ray_num_workers", least=1)
    if workers and keys.is_on("use_ray"):
        return Stated(workers.value, workers.entry, workers.key, "one GPU a Ray worker")
    shard = keys.integer("dp_shard_size", least=1) or keys.integer("dp_replicate_size", least=1)
    if shard is None:
        return None
    total, parts = 1, []
    for key in _WORLD:
        given = keys.integer(key, least=1)
        if given:
            total *= given.value
            parts.append(key)
    return Stated(total, shard.entry, shard.key, " x ".join(parts) if len(parts) > 1 else "")


def _auto_values(config: AxolotlConfig) -> AutoValues:
    """axolotl's values, and TrainingArguments' own defaults (weight decay 0, clipping at 1) where it passes none."""
    keys, job = config.keys, config.builder.job
    origin = job.origins.get("hardware.gpus")
    rate, decay, clip = keys.number("learning_rate"), keys.number("weight_decay"), keys.number("max_grad_norm")
    return AutoValues(
        client="transformers",
        micro_batch_size=job.micro_batch_size,
        gradient_accumulation_steps=job.gradient_accumulation_steps,
        world_size=job.hardware.gpus if origin is not None and origin.kind != "assumed" else None,
        bf16=job.precision.autocast == "bfloat16",
        fp16=job.precision.autocast == "float16",
        hidden_size=hidden_size(job.model, config.document.path, config.project.root),
        learning_rate=rate.value if rate else None,
        weight_decay=decay.value if decay else 0.0,
        max_grad_norm=clip.value if clip else 1.0,
    )


def _set_fsdp(config: AxolotlConfig) -> None:
    keys, builder, job = config.keys, config.builder, config.builder.job
    given, legacy = keys.raw("fsdp_config"), keys.raw("fsdp")
    node = given.entry.value if given is not None and given.entry.value.is_mapping else None
    version = keys.integer("fsdp_version", least=1)
    stated = (version.value, version.entry, version.key) if version and version.value in (1, 2) else None
    word = WORDS.get(job.precision.autocast or "", "no")
    known = frozenset(load(NAME)["$defs"]["FSDPConfig"]["properties"]) | {"version"}
    container = given if given is not None and given.value else legacy
    assert container is not None
    config.put("parallelism.fsdp", container, Fsdp())
    apply_fsdp(builder, Section(node, "fsdp_config", known), _FSDP, word, stated)
    assert job.parallelism.fsdp is not None
    if job.parallelism.fsdp.version == 2 and job.parallelism.fsdp.upcast_trainable:
        note = "Axolotl's own fsdp2_prepare_model (monkeypatch/accelerate/fsdp2.py, from 0.12 on) leaves dtypes alone"
        builder.derived("parallelism.fsdp.upcast_trainable", False, note, "parallelism.fsdp.version")
    if job.parallelism.fsdp.version == 2 and SHARDS_PACKED.at(job.versions.get(NAME)):
        note = "Axolotl's FSDPParam shards Params4bit and Int8Params (monkeypatch/fsdp2_qlora.py, from 0.15 on)"
        builder.derived("parallelism.fsdp.shards_packed", True, note, "parallelism.fsdp.version")
    if legacy is not None and legacy.value:
        _legacy(config, legacy)
    sync = keys.mapping("accelerator_config").mapping("gradient_accumulation_kwargs").flag("sync_each_batch")
    if sync:
        config.put("parallelism.fsdp.sync_each_batch", sync, sync.value)
    replicas, shards = keys.integer("dp_replicate_size", least=2), keys.integer("dp_shard_size", least=1)
    if replicas and shards:
        config.put("parallelism.fsdp.shard_size", shards, shards.value, f"{replicas.value} replicas")


def _legacy(config: AxolotlConfig, legacy: Given) -> None:
    """The words of the old `fsdp` list; `fsdp_config` says more and wins (`_apply_legacy_fsdp_to_config`)."""
    raw: Any = legacy.value
    words = [str(word).lower() for word in (raw if isinstance(raw, list) else str(raw).split())]
    origins = config.builder.job.origins
    for word in words:
        if word in ("full_shard", "shard_grad_op", "hybrid_shard", "hybrid_shard_zero2", "no_shard"):
            if origins["parallelism.fsdp.sharding"].kind == "default":
                config.put("parallelism.fsdp.sharding", legacy, word)
                reshard = word in ("full_shard", "hybrid_shard")
                config.put("parallelism.fsdp.reshard_after_forward", legacy, reshard)
        elif word == "offload" and origins["parallelism.fsdp.offload"].kind == "default":
            config.put("parallelism.fsdp.offload", legacy, True)
