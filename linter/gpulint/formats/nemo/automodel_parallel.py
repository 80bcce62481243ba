"""Sizes, sharding, batches and hardware of a NeMo Automodel recipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...upstream import nemo_automodel
from ..core.backends.fsdp import FSDP, fsdp2, may_shard
from ..core.backends.gpus import model_ranks
from ..core.bindings.kinds import ANYTHING, FLAG, POSITIVE, WORD, Unsaid, integer
from ..core.bindings.rows import LEAVE, NEVER, Default, Derived, Fixed, Key, Written, only, within
from ..core.bindings.spelling import DTYPE, schedule
from ..core.world_size import Stated, set_hardware

if TYPE_CHECKING:
    from ...job.job import Job
    from ..core.bindings.reader import Reader
    from ..core.bindings.rows import Row

PER_NODE = 8
"""GPUs of a node where a recipe counts nodes only: its CI and guides run on nodes of eight."""

DEGREES = (
    *(
        Key(f"parallelism.{name}", f"distributed.{name[0]}p_size", POSITIVE, 1)
        for name in ("tensor", "context", "expert")
    ),
    Key("parallelism.pipeline", "distributed.pp_size", POSITIVE, 1, back=NEVER),
    Key("parallelism.sequence", "distributed.sequence_parallel", FLAG, False),
)


def _set_world(reader: Reader) -> None:
    """GPUs: what the launcher says; data parallel size times the others; nodes of eight; else what the sizes need."""
    plan = reader.job.parallelism
    least = plan.pipeline * max(plan.tensor * plan.context, plan.expert)
    data = reader.given(POSITIVE, "distributed.dp_size")
    nodes = reader.given(POSITIVE, "benchmark.num_nodes", "ci.nodes", "slurm.nodes")
    each = reader.given(POSITIVE, "ci.nproc_per_node", "slurm.ntasks_per_node")
    whole = data.value * plan.tensor * plan.pipeline * plan.context if data else 0
    count = each.value if each else PER_NODE
    stated: Stated | None = None
    if data and whole >= least:
        stated = Stated(whole, data.entry, data.key, "data x tensor x pipeline x context parallel size")
    elif nodes:
        if nodes.value * count >= least:
            stated = Stated(nodes.value * count, nodes.entry, nodes.key, f"nodes x {count} GPUs")
    elif each and each.value >= least:
        stated = Stated(each.value, each.entry, each.key)
    set_hardware(reader, reader.project, stated, sharded=True)
    if reader.project.gpus is None and stated is None and least > PER_NODE:
        reader.assumed("hardware.gpus", least, "nothing states a count; the least that the parallel sizes need")


def _undivided(reader: Reader) -> Any:
    if reader.value(WORD, "distributed.strategy") == "ddp":
        return Derived(None, "plain data parallelism")
    alone = reader.job.hardware.gpus == 1
    return Derived(None, "World size is 1: `fsdp2_sharding_enabled` says no") if alone else LEAVE


def _has_experts(job: Job) -> bool:
    return job.parallelism.expert > 1


def _reduces(reader: Reader) -> str:
    release = reader.job.versions.get(nemo_automodel.NAME)
    wide = nemo_automodel.REDUCES_FLOAT32.at(release) or _has_experts(reader.job)
    return "float32" if wide else "bfloat16"


def _reshards(reader: Reader) -> Any:
    if _has_experts(reader.job):
        return Default(False, "default of MoEParallelizerConfig")
    piped = reader.job.parallelism.pipeline > 1
    return Derived(False, "not under pipeline parallelism", "parallelism.pipeline") if piped else True


_POLICY: tuple[Row, ...] = (
    Key(f"{FSDP}mixed_precision.param_dtype", "mp_policy.param_dtype", DTYPE, "bfloat16"),
    Key(f"{FSDP}mixed_precision.reduce_dtype", "mp_policy.reduce_dtype", DTYPE, _reduces),
    Key(f"{FSDP}reshard_after_forward", "reshard_after_forward", FLAG, _reshards),
)


def _of_replica(replicas: int, job: Job) -> Written:
    ranks = (job.hardware.gpus or 1) // (job.parallelism.tensor * job.parallelism.pipeline)
    return Written(max(1, ranks // replicas), "ranks of one replica")


_SHARDING = only(
    may_shard,
    Fixed(f"{FSDP}experts_unwrapped", lambda reader: _has_experts(reader.job)),
    Fixed(f"{FSDP}outer", lambda reader: "separate" if _has_experts(reader.job) else "root"),
    Fixed(f"{FSDP}sharding", "full_shard"),
    Fixed(f"{FSDP}upcast_trainable", Default(False, "parameters keep the dtype that they are loaded in")),
    Fixed(f"{FSDP}state_dict_type", "SHARDED_STATE_DICT"),
    *only(_has_experts, *within("distributed.moe", *_POLICY)),
    *only(lambda job: not _has_experts(job), *within("distributed", *_POLICY)),
    Key(
        f"{FSDP}offload", "distributed.offload_policy", ANYTHING, False,
        lambda policy, _: True if policy else Unsaid.OTHER,
    ),
    Key(f"{FSDP}sync_each_batch", "distributed.defer_fsdp_grad_sync", FLAG, False, {True: False, False: True}),
    Key(f"{FSDP}shard_size", "distributed.dp_replicate_size", integer(2), to=_of_replica),
    *fsdp2(),
)  # fmt: skip
"""FSDP2 with bfloat16 for computing and float32 for reducing, as `FSDP2Config` has it.

Parameters keep the dtype that they are loaded in. Layers under pipeline parallelism are not resharded after forward,
and where there is expert parallelism only where `moe.reshard_after_forward` says so: own model classes, whose experts
are apart and whose policy is MoEParallelizerConfig's (components/moe/parallelizer.py `apply_fsdp`).
"""


def _set_batches(reader: Reader) -> None:
    """`local_batch_size` rows a rank; a pipeline cuts them into micro batches. The rest of the global batch is
    accumulated.
    """
    local, whole = (reader.given(POSITIVE, f"step_scheduler.{name}_batch_size") for name in ("local", "global"))
    size, ranks = local.value if local else 1, model_ranks(reader.job)
    if reader.job.parallelism.pipeline > 1:
        names = ("distributed.pipeline.pp_microbatch_size", "autopipeline.pp_microbatch_size")
        micro = reader.given(POSITIVE, *names)
        each = min(size, micro.value if micro else 1)
        reader.set("micro_batch_size", micro or local, each)
        note = "local batch / micro batch"
        reader.derived("parallelism.microbatches", max(1, size // each), note, "micro_batch_size")
    if whole:
        steps, note = max(1, whole.value // (size * ranks)), f"global batch / ({size} x {ranks} ranks)"
        reader.set("gradient_accumulation_steps", whole, steps, note)
    else:
        reader.default("gradient_accumulation_steps", 1, "global batch of one local batch a rank")


def _is_piped(job: Job) -> bool:
    return job.parallelism.pipeline > 1


def _checkpointing(value: Any, _job: Job) -> str:
    word = str(value).lower()
    return "selective" if word == "selective" else "none" if word in ("false", "off", "none", "no") else "full"


PARALLEL = (
    _set_world,
    Fixed("parallelism.zero", None),
    Fixed("precision.autocast", None),
    Fixed("precision.gradients", Derived(None, "gradients have the dtype of their weight")),
    Fixed("parallelism.fsdp", _undivided),
    *_SHARDING,
    _set_batches,
    Key("micro_batch_size", "distributed.pipeline.pp_microbatch_size", POSITIVE, when=_is_piped),
    Key(
        "micro_batch_size", "step_scheduler.local_batch_size", POSITIVE, 1, when=lambda job: not _is_piped(job),
    ),
    Key(
        "parallelism.pipeline_schedule", "distributed.pipeline.pp_schedule", schedule(), "1f1b", back=NEVER,
        when=_is_piped,
    ),
    Key(
        "activation_checkpointing",
        (
            "distributed.activation_checkpointing", "parallelizer.activation_checkpointing",
            "model.activation_checkpointing", "model.base_activation_checkpointing",
        ),
        ANYTHING, "none", _checkpointing, {"full": True, "none": False, "selective": "selective"},
    ),
    Fixed("reentrant", Default(False, "PyTorch's checkpoint wrapper")),
)  # fmt: skip
"""`hardware`, `parallelism`, batches and activation checkpointing, after the degrees."""
