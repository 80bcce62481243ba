"""Sizes, sharding, batches and hardware of a NeMo Automodel recipe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream import nemo_automodel
from ..core.sections import dtype_of
from ..core.world_size import Stated, set_hardware

if TYPE_CHECKING:
    from ..core.arguments import Given
    from ..core.format import Project
    from ..core.sections import Filling, Sections

_SCHEDULES = {
    "1f1b": "1f1b", "interleaved1f1b": "1f1b", "gpipe": "gpipe", "loopedbfs": "gpipe", "zerobubble": "zero_bubble",
    "interleavedzerobubble": "zero_bubble", "zbvzerobubble": "zero_bubble", "dualpipev": "dualpipe",
}  # fmt: skip

PER_NODE = 8
"""GPUs of a node where a recipe counts nodes only: its CI and guides run on nodes of eight."""


def set_parallelism(filling: Filling, values: Sections, project: Project) -> None:
    """Fill `hardware`, `parallelism`, batches and activation checkpointing."""
    builder = filling.builder
    for name in ("tensor", "pipeline", "context", "expert"):
        filling.fill(f"parallelism.{name}", values.integer(f"distributed.{name[0]}p_size", least=1), 1)
    filling.fill("parallelism.sequence", values.flag("distributed.sequence_parallel"), False)
    _set_world(filling, values, project)
    strategy = values.text("distributed.strategy")
    kind = strategy.value.lower() if strategy else "fsdp2"
    builder.default("parallelism.zero", None)
    builder.default("precision.autocast", None)
    builder.derived("precision.gradients", None, "gradients have the dtype of their weight")
    if kind == "ddp" or builder.job.hardware.gpus == 1:
        note = "plain data parallelism" if kind == "ddp" else "World size is 1: `fsdp2_sharding_enabled` says no"
        builder.derived("parallelism.fsdp", None, note)
    else:
        _set_fsdp(filling, values)
    _set_batches(filling, values)
    given = values.raw(
        "distributed.activation_checkpointing",
        "parallelizer.activation_checkpointing",
        "model.activation_checkpointing",
        "model.base_activation_checkpointing",
    )
    if given and given.value is not None:
        word = str(given.value).lower()
        mode = "selective" if word == "selective" else "none" if word in ("false", "off", "none", "no") else "full"
        filling.put("activation_checkpointing", given, mode)
    else:
        builder.default("activation_checkpointing", "none")
    builder.default("reentrant", False, "PyTorch's checkpoint wrapper")


def _set_world(filling: Filling, values: Sections, project: Project) -> None:
    """GPUs: what the launcher says; data parallel size times the others; nodes of eight; else what the sizes need."""
    plan = filling.builder.job.parallelism
    least = plan.pipeline * max(plan.tensor * plan.context, plan.expert)
    data = values.integer("distributed.dp_size", least=1)
    nodes = values.integer("benchmark.num_nodes", "ci.nodes", "slurm.nodes", least=1)
    each = values.integer("ci.nproc_per_node", "slurm.ntasks_per_node", least=1)
    stated: Stated | None = None
    if data and data.value * plan.tensor * plan.pipeline * plan.context >= least:
        note = "data x tensor x pipeline x context parallel size"
        stated = Stated(data.value * plan.tensor * plan.pipeline * plan.context, data.entry, data.key, note)
    elif nodes:
        count = each.value if each else PER_NODE
        if nodes.value * count >= least:
            stated = Stated(nodes.value * count, nodes.entry, nodes.key, f"nodes x {count} GPUs")
    elif each and each.value >= least:
        stated = Stated(each.value, each.entry, each.key)
    set_hardware(filling.builder, project, stated, sharded=True)
    if project.gpus is None and stated is None and least > PER_NODE:
        note = "nothing states a count; the least that the parallel sizes need"
        filling.builder.assumed("hardware.gpus", least, note)


def _set_fsdp(filling: Filling, values: Sections) -> None:
    """FSDP2 with bfloat16 for computing and float32 for reducing, as `FSDP2Config` has it.

    Parameters keep the dtype that they are loaded in. Layers under pipeline parallelism are not resharded after
    forward, and where there is expert parallelism only where `moe.reshard_after_forward` says so: own model classes,
    whose experts are apart and whose policy is MoEParallelizerConfig's (components/moe/parallelizer.py `apply_fsdp`).
    """
    builder = filling.builder
    path = "parallelism.fsdp."
    experts = builder.job.parallelism.expert > 1
    wide = nemo_automodel.REDUCES_FLOAT32.at(builder.job.versions.get(nemo_automodel.NAME)) or experts
    builder.default(f"{path}experts_unwrapped", experts)
    builder.default(f"{path}outer", "separate" if experts else "root")
    builder.default(f"{path}version", 2)
    builder.default(f"{path}sharding", "full_shard")
    builder.default(f"{path}wrap", "transformer")
    builder.default(f"{path}upcast_trainable", False, "parameters keep the dtype that they are loaded in")
    builder.default(f"{path}state_dict_type", "SHARDED_STATE_DICT")
    owner = "distributed.moe." if experts else "distributed."
    for part, default in (("param_dtype", "bfloat16"), ("reduce_dtype", "float32" if wide else "bfloat16")):
        given = values.text(f"{owner}mp_policy.{part}")
        if given and dtype_of(given):
            filling.put(f"{path}mixed_precision.{part}", given, dtype_of(given))
        else:
            builder.default(f"{path}mixed_precision.{part}", default)
    offload = values.raw("distributed.offload_policy")
    if offload and offload.value:
        filling.put(f"{path}offload", offload, value=True)
    else:
        builder.default(f"{path}offload", False)
    reshard = values.flag(f"{owner}reshard_after_forward")
    if reshard:
        filling.put(f"{path}reshard_after_forward", reshard)
    elif experts:
        builder.default(f"{path}reshard_after_forward", False, "default of MoEParallelizerConfig")
    elif builder.job.parallelism.pipeline > 1:
        builder.derived(f"{path}reshard_after_forward", False, "not under pipeline parallelism", "parallelism.pipeline")
    else:
        builder.default(f"{path}reshard_after_forward", True)
    defer = values.flag("distributed.defer_fsdp_grad_sync")
    if defer:
        filling.put(f"{path}sync_each_batch", defer, not defer.value)
    else:
        builder.default(f"{path}sync_each_batch", False)
    replicas = values.integer("distributed.dp_replicate_size", least=2)
    if replicas:
        plan = builder.job.parallelism
        ranks = (builder.job.hardware.gpus or 1) // (plan.tensor * plan.pipeline)
        filling.put(f"{path}shard_size", replicas, max(1, ranks // replicas.value), "ranks of one replica")


def _set_batches(filling: Filling, values: Sections) -> None:
    """`local_batch_size` rows a rank; a pipeline cuts them into micro batches. The rest of the global batch is
    accumulated.
    """
    builder = filling.builder
    plan = builder.job.parallelism
    local = values.integer("step_scheduler.local_batch_size", least=1)
    size = local.value if local else 1
    micro = values.integer("distributed.pipeline.pp_microbatch_size", "autopipeline.pp_microbatch_size", least=1)
    if plan.pipeline > 1:
        each = min(size, micro.value if micro else 1)
        place: Given | None = micro or local
        if place:
            filling.put("micro_batch_size", place, each)
        else:
            builder.default("micro_batch_size", each)
        builder.derived(
            "parallelism.microbatches", max(1, size // each), "local batch / micro batch", "micro_batch_size"
        )
        schedule = values.text("distributed.pipeline.pp_schedule")
        word = schedule.value.lower().replace("_", "") if schedule else "1f1b"
        filling.fill("parallelism.pipeline_schedule", None, _SCHEDULES.get(word, "1f1b"))
        if schedule and word in _SCHEDULES:
            filling.put("parallelism.pipeline_schedule", schedule, _SCHEDULES[word])
    else:
        filling.fill("micro_batch_size", local, 1)
    whole = values.integer("step_scheduler.global_batch_size", least=1)
    ranks = max(1, (builder.job.hardware.gpus or 1) // (plan.tensor * plan.pipeline * plan.context))
    if whole:
        steps = max(1, whole.value // (size * ranks))
        filling.put("gradient_accumulation_steps", whole, steps, f"global batch / ({size} x {ranks} ranks)")
    else:
        builder.default("gradient_accumulation_steps", 1, "global batch of one local batch a rank")
