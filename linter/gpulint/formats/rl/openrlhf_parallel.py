"""GPUs, ZeRO and the models that share GPUs in an OpenRLHF command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...upstream.behaviour import default_of
from ...upstream.rl import openrlhf
from ..core.bindings.kinds import FLAG, NATURAL, NUMBER, POSITIVE, TEXT
from ..core.bindings.rows import NEVER, Default, Derived, Fixed, Key, Written, only
from ..core.world_size import Stated, set_hardware

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...job.job import Job
    from ..core.bindings.reader import Reader

PROGRAMS = {"sft": "sft", "dpo": "dpo", "kto": "kto", "reward": "rm"}
"""Objective -> the program that trains so; `ppo_ray` trains the rest."""

_MICRO = {"sft": 8, "dpo": 8, "kto": 8, "rm": 1, "ppo_ray": 1}
"""Default rows of a micro batch, by program."""

_COLOCATE = ("train.colocate_all", "colocate_all_models")
_SLEEP = ("ds.enable_sleep", "deepspeed_enable_sleep")
_NEW_TOKENS = ("rollout.max_new_tokens", "generate_max_len")


def is_online(job: Job) -> bool:
    """Whether PPO's program trains: it generates the rows."""
    return job.objective not in PROGRAMS


def program_of(job: Job) -> str:
    """The program that trains."""
    return PROGRAMS.get(job.objective, "ppo_ray")


def default_in_release(name: str, usual: Callable[[Job], Any]) -> Callable[[Reader], Any]:
    """The default of a flag in the release of the command; of the present one where no row of upstream's says."""

    def default(reader: Reader) -> Any:
        release, program = reader.job.versions["openrlhf"], program_of(reader.job)
        return default_of(openrlhf.DEFAULTS, release, name.format(program=program), usual(reader.job))

    return default


def _set_gpus(reader: Reader) -> None:
    """PPO trains its actor on a group of GPUs of its own."""
    stated: Stated | None = None
    if is_online(reader.job):
        nodes = reader.given(POSITIVE, "actor.num_nodes", "actor_num_nodes")
        each = reader.given(POSITIVE, "actor.num_gpus_per_node", "actor_num_gpus_per_node")
        count, per_node = nodes.value if nodes else 1, each.value if each else 8
        given = each or nodes
        note = f"{count} nodes x {per_node} GPUs for the actor"
        stated = Stated(count * per_node, given.entry, given.key, note, group=True) if given else None
    set_hardware(reader, reader.project, stated, sharded=True)


def _set_steps(reader: Reader) -> None:
    job, whole = reader.job, reader.given(POSITIVE, "train.batch_size", "train_batch_size")
    ranks = max(1, (job.hardware.gpus or 1) // (job.parallelism.tensor * job.parallelism.context))
    rows = whole.value if whole else 128
    steps, note = max(1, rows // ((job.micro_batch_size or 1) * ranks)), f"{rows} rows over {ranks} ranks"
    reader.put("gradient_accumulation_steps", Written(steps, note) if whole else Default(steps, note), whole)


PARALLEL = (
    _set_gpus,
    Key("parallelism.tensor", ("ds.tensor_parallel_size", "ds_tensor_parallel_size"), POSITIVE, 1),
    Key("parallelism.context", ("ds.ring_attn_size", "ring_attn_size"), POSITIVE, 1),
    Fixed("parallelism.pipeline", 1),
    Fixed("parallelism.fsdp", None),
    Key("parallelism.zero.stage", ("ds.zero_stage", "zero_stage"), NATURAL, 2),
    Key(
        "parallelism.zero.offload_optimizer.device", ("ds.adam_offload", "adam_offload"), FLAG, to={True: "cpu"},
        back={"cpu": True, "none": False},
    ),
    Key(
        "parallelism.zero.offload_optimizer.pin_memory", ("ds.adam_offload", "adam_offload"), FLAG, to={True: True},
        back=NEVER,
    ),
    Key(
        "micro_batch_size", ("train.micro_batch_size", "micro_train_batch_size"), POSITIVE,
        default_in_release("{program}_micro_batch_size", lambda job: _MICRO[program_of(job)]),
    ),
    _set_steps,
)  # fmt: skip
"""`hardware`, ZeRO and batches."""


def _has_reference(job: Job) -> bool:
    return job.objective in ("dpo", "kto") and job.method == "full"


def _set_others(reader: Reader) -> None:
    """What `colocate_all` puts on the actor's GPUs: the critic, the reward model, the engines."""
    if not is_online(reader.job):
        return
    shared = reader.value(FLAG, *_COLOCATE, default=False)
    apart = not shared or reader.value(FLAG, *_SLEEP, default=False)
    reader.derived("rl.value_model", "apart" if apart else "model", "where the critic is while the actor trains")
    reward = reader.given(TEXT, "reward.model_name_or_path", "reward_pretrain")
    if reward and shared:
        reader.set("rl.reward_model", reward)
    engines = reader.given(POSITIVE, "vllm.num_engines", "vllm_num_engines")
    if engines:
        reader.set("rl.vllm", engines, "colocate" if shared else "server")


ROLLOUT = (
    Key("rl.reference_model", ("algo.kl.init_coef", "init_kl_coef"), NUMBER, to={0.0: False}, back=NEVER,
        when=is_online, note="no KL term"),
    Key("rl.reference_model", ("ref.offload", "ref_offload"), FLAG, to={True: False}, back={False: True},
        when=lambda job: is_online(job) or _has_reference(job), note="in main memory"),
    *only(
        is_online,
        Key("rl.reference_model", _COLOCATE, FLAG, to={True: True}, back=NEVER),
        Key("rl.reference_model", ("train.colocate_actor_ref", "colocate_actor_ref"), FLAG,
            Default(False, "on GPUs of its own"), {True: True}, NEVER),
        _set_others,
        Fixed("rl.reward_model", Default("none", "not on the GPUs of the actor")),
        Key("rl.generations", ("rollout.n_samples_per_prompt", "n_samples_per_prompt"), POSITIVE, 1),
        Key("rl.prompt_length", "prompt_max_len", POSITIVE, lambda reader: Default(
            max(1, (reader.job.sequence_length or 0) - reader.value(POSITIVE, *_NEW_TOKENS, default=0)),
            "what max_len leaves",
        )),
        Key("rl.completion_length", _NEW_TOKENS, POSITIVE,
            lambda reader: Default(reader.job.sequence_length or 0, "as long as max_len")),
        Fixed("rl.vllm", None),
    ),
    Fixed("rl.reference_model", lambda reader: Derived(
        _has_reference(reader.job), f"openrlhf.cli.train_{program_of(reader.job)}", "objective")),
    *only(
        lambda job: job.rl.vllm == "colocate",
        Key("rl.vllm_gpu_memory_utilization", ("vllm.gpu_memory_utilization", "vllm_gpu_memory_utilization"), NUMBER,
            default_in_release("vllm_gpu_memory_utilization", lambda _: 0.95)),
        Key("rl.vllm_sleep", ("vllm.enable_sleep", "vllm_enable_sleep"), FLAG, default=False),
        Key("rl.policy_offload", _SLEEP, FLAG, default=False),
    ),
)  # fmt: skip
"""The reference model of DPO; of PPO what `colocate_all` and `colocate_actor_ref` put on the actor's GPUs."""
