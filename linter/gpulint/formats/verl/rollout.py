"""What shares the GPUs with verl's actor: the rollout engine, the reference model, the critic, a reward model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .filling import ACTOR, REF, ROLLOUT, VerlFilling
from .sizes import uses_megatron

if TYPE_CHECKING:
    from ..core.sections import Sections


def set_rollout(filling: VerlFilling, values: Sections) -> None:
    """The engine takes its share of each GPU and, with `free_cache_engine`, gives it back for training."""
    builder = filling.builder
    for path, key, default in (
        ("rl.prompt_length", "data.max_prompt_length", 512),
        ("rl.completion_length", "data.max_response_length", 512),
        ("rl.generations", f"{ROLLOUT}.n", 1),
    ):
        filling.fill(path, values.integer(key, least=1), default)
    engine = values.text(f"{ROLLOUT}.name")
    apart = values.integer("rollout.n_gpus_per_node", least=1)
    if apart or values.integer(f"{ROLLOUT}.nnodes", least=1):
        filling.fill("rl.vllm", apart._replace(value="server") if apart else None, "server")
        return
    if engine and engine.value == "hf":
        filling.nothing("rl.vllm", engine, "the training framework generates itself")
        return
    if engine and filling.is_stated(engine):
        filling.put("rl.vllm", engine, "colocate")
    else:
        builder.default("rl.vllm", "colocate", "rollout on the GPUs of the actor")
    filling.fill("rl.vllm_gpu_memory_utilization", values.number(f"{ROLLOUT}.gpu_memory_utilization"), 0.5)
    filling.fill("rl.vllm_sleep", values.flag(f"{ROLLOUT}.free_cache_engine"), True)
    section = f"{ACTOR}.megatron" if uses_megatron(values) else f"{ACTOR}.fsdp_config"
    weights, states = values.flag(f"{section}.param_offload"), values.flag(f"{section}.optimizer_offload")
    policy = values.flag(f"{section}.offload_policy")
    if weights and weights.value and states and states.value:
        filling.put("rl.policy_offload", weights)
    elif policy and policy.value:
        filling.put("rl.policy_offload", policy)
    else:
        builder.default("rl.policy_offload", False, "weights or states stay on the GPU while the engine generates")


def set_others(filling: VerlFilling, values: Sections) -> None:
    """The reference model where a KL term needs one; the critic that GAE trains; the reward model."""
    builder = filling.builder
    section = "megatron" if uses_megatron(values) else "fsdp_config"
    loss, reward = values.flag(f"{ACTOR}.use_kl_loss"), values.flag("algorithm.use_kl_in_reward")
    offload = values.flag(f"{REF}.{section}.param_offload")
    needs = next((given for given in (loss, reward) if given and given.value), None)
    if builder.job.method != "full":
        builder.derived("rl.reference_model", False, "the model without its adapter is the reference", "method")
    elif needs is None:
        builder.default("rl.reference_model", False, "no KL term")
    elif offload and offload.value:
        filling.put("rl.reference_model", offload, value=False, note="in main memory but for its own forward pass")
    else:
        filling.put("rl.reference_model", needs, value=True, note="a KL term needs a frozen copy of the model")
    if builder.job.objective != "ppo":
        return
    own = "megatron" if uses_megatron(values) else "fsdp"
    parts = [
        values.flag(f"critic.model.fsdp_config.{name}", f"critic.{own}.{name}", f"critic.{section}.{name}")
        for name in ("param_offload", "optimizer_offload")
    ]
    if all(part is not None and part.value for part in parts) and parts[0] is not None:
        filling.put("rl.value_model", parts[0], "apart", "the critic waits in main memory")
    else:
        builder.default("rl.value_model", "model", "a critic is trained beside the actor")
    enabled = values.flag("reward.reward_model.enable", "reward_model.enable")
    model = values.text("reward.reward_model.model_path", "reward_model.model.path")
    if enabled and enabled.value and model:
        filling.put("rl.reward_model", model)
    else:
        builder.default("rl.reward_model", "none", "rewards come from a function")
