"""GPUs, ZeRO and the models that share GPUs in an OpenRLHF command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream import openrlhf
from ...upstream.behaviour import default_of
from ..core.world_size import Stated, set_hardware

if TYPE_CHECKING:
    from ..core.format import Project
    from ..core.sections import Filling, Renamed

_MICRO = {"sft": 8, "dpo": 8, "kto": 8, "rm": 1, "ppo_ray": 1}
"""Default rows of a micro batch, by program."""


def set_parallelism(filling: Filling, values: Renamed, project: Project, program: str) -> None:
    """`hardware`, ZeRO (stage 2 by default), batches. PPO trains its actor on a group of GPUs of its own."""
    builder = filling.builder
    stated: Stated | None = None
    if program == "ppo_ray":
        nodes, each = values.integer("nodes", least=1), values.integer("gpus", least=1)
        count, per_node = nodes.value if nodes else 1, each.value if each else 8
        given = each or nodes
        note = f"{count} nodes x {per_node} GPUs for the actor"
        stated = Stated(count * per_node, given.entry, given.key, note) if given else None
    set_hardware(builder, project, stated, sharded=True)
    for name, key in (("tensor", "tensor"), ("context", "ring")):
        filling.fill(f"parallelism.{name}", values.integer(key, least=1), 1)
    builder.default("parallelism.pipeline", 1)
    builder.default("parallelism.fsdp", None)
    filling.fill("parallelism.zero.stage", values.integer("stage", least=0), 2)
    offload = values.flag("adam_offload")
    if offload and offload.value:
        filling.put("parallelism.zero.offload_optimizer.device", offload, "cpu")
        filling.put("parallelism.zero.offload_optimizer.pin_memory", offload, value=True)
    release = builder.job.versions["openrlhf"]
    usual = default_of(openrlhf.DEFAULTS, release, f"{program}_micro_batch_size", _MICRO[program])
    filling.fill("micro_batch_size", values.integer("micro", least=1), usual)
    whole = values.integer("batch", least=1)
    plan = builder.job.parallelism
    ranks = max(1, (builder.job.hardware.gpus or 1) // (plan.tensor * plan.context))
    rows = (builder.job.micro_batch_size or 1) * ranks
    size = whole.value if whole else 128
    if whole:
        filling.put("gradient_accumulation_steps", whole, max(1, size // rows), f"{size} rows over {ranks} ranks")
    else:
        builder.default("gradient_accumulation_steps", max(1, size // rows), f"{size} rows over {ranks} ranks")


def set_rollout(filling: Filling, values: Renamed, program: str) -> None:
    """The reference model of DPO; of PPO what `colocate_all` and `colocate_actor_ref` put on the actor's GPUs."""
    builder = filling.builder
    offload = values.flag("ref_offload")
    if program != "ppo_ray":
        needs = program in ("dpo", "kto") and builder.job.method == "full"
        if needs and offload and offload.value:
            filling.put("rl.reference_model", offload, value=False, note="in main memory")
        else:
            builder.derived("rl.reference_model", needs, f"openrlhf.cli.train_{program}", "objective")
        return
    everything, beside = values.flag("colocate"), values.flag("colocate_ref")
    shared = bool(everything and everything.value)
    kl = values.number("kl")
    if kl and kl.value == 0:
        filling.put("rl.reference_model", kl, value=False, note="no KL term")
    elif offload and offload.value:
        filling.put("rl.reference_model", offload, value=False, note="in main memory")
    elif everything and shared:
        filling.put("rl.reference_model", everything, value=True)
    elif beside and beside.value:
        filling.put("rl.reference_model", beside, value=True)
    else:
        builder.default("rl.reference_model", False, "on GPUs of its own")
    sleeps = values.flag("ds_sleep")
    apart = not shared or bool(sleeps and sleeps.value)
    builder.derived("rl.value_model", "apart" if apart else "model", "where the critic is while the actor trains")
    reward = values.text("reward")
    if reward and shared:
        filling.put("rl.reward_model", reward)
    else:
        builder.default("rl.reward_model", "none", "not on the GPUs of the actor")
    filling.fill("rl.generations", values.integer("samples", least=1), 1)
    new = values.integer("new_tokens", least=1)
    whole = builder.job.sequence_length or 0
    filling.fill("rl.completion_length", new, whole, "as long as max_len")
    prompt = values.integer("prompt_len", least=1)
    filling.fill("rl.prompt_length", prompt, max(1, whole - (new.value if new else 0)), "what max_len leaves")
    engines = values.integer("engines", least=1)
    if engines is None:
        builder.default("rl.vllm", None)
        return
    filling.put("rl.vllm", engines, "colocate" if shared else "server")
    if shared:
        usual = default_of(openrlhf.DEFAULTS, builder.job.versions["openrlhf"], "vllm_gpu_memory_utilization", 0.95)
        filling.fill("rl.vllm_gpu_memory_utilization", values.number("share"), usual)
        filling.fill("rl.vllm_sleep", values.flag("vllm_sleep"), False)
        filling.fill("rl.policy_offload", sleeps, False)
