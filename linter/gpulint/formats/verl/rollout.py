"""What shares the GPUs with verl's actor: the rollout engine, the reference model, the critic, a reward model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.backends.megatron import is_megatron
from ..core.bindings.kinds import FLAG, NUMBER, POSITIVE, TEXT
from ..core.bindings.rows import Key, only
from .actor import ACTOR

if TYPE_CHECKING:
    from ...job.job import Job
    from ..core.arguments import Given
    from ..core.bindings.reader import Reader
    from ..core.format import Reading
    from ..core.key_changes import Keys

_REF = "actor_rollout_ref.ref"
_ROLLOUT = "actor_rollout_ref.rollout"


def _section(job: Job) -> str:
    return "megatron" if is_megatron(job) else "fsdp_config"


def _on(given: Given | None) -> bool:
    return given is not None and bool(given.value)


def _set_engine(reader: Reader) -> None:
    engine, apart = reader.given(TEXT, f"{_ROLLOUT}.name"), reader.given(POSITIVE, "rollout.n_gpus_per_node")
    if apart:
        reader.set("rl.vllm", apart, "server")
    elif reader.given(POSITIVE, f"{_ROLLOUT}.nnodes"):
        reader.default("rl.vllm", "server")
    elif engine and engine.value == "hf":
        reader.set("rl.vllm", engine, None, "the training framework generates itself")
    elif engine and reader.is_stated(engine):
        reader.set("rl.vllm", engine, "colocate")
    else:
        reader.default("rl.vllm", "colocate", "rollout on the GPUs of the actor")


def _set_policy(reader: Reader) -> None:
    """Whether the actor waits in main memory while the engine generates."""
    section = f"{ACTOR}.{_section(reader.job)}"
    names = ("param_offload", "optimizer_offload", "offload_policy")
    weights, states, policy = (reader.given(FLAG, f"{section}.{name}") for name in names)
    found = weights if _on(weights) and _on(states) else policy if _on(policy) else None
    note = "weights or states stay on the GPU while the engine generates"
    if found:
        reader.set("rl.policy_offload", found)
    else:
        reader.default("rl.policy_offload", False, note)


def _set_reference(reader: Reader) -> None:
    """The reference model where a KL term needs one."""
    field, offload = "rl.reference_model", reader.given(FLAG, f"{_REF}.{_section(reader.job)}.param_offload")
    terms = [reader.given(FLAG, key) for key in (f"{ACTOR}.use_kl_loss", "algorithm.use_kl_in_reward")]
    needs = next((given for given in terms if given and given.value), None)
    if reader.job.method != "full":
        reader.derived(field, False, "the model without its adapter is the reference", "method")
    elif needs is None:
        reader.default(field, False, "no KL term")
    elif offload and offload.value:
        reader.set(field, offload, False, "in main memory but for its own forward pass")
    else:
        reader.set(field, needs, True, "a KL term needs a frozen copy of the model")


def _set_critic(reader: Reader) -> None:
    """The critic that GAE trains, and the model that rewards."""
    if reader.job.objective != "ppo":
        return
    section = _section(reader.job)
    weights, states = (
        reader.given(
            FLAG, *(f"critic.{part}.{name}" for part in ("model.fsdp_config", section.removesuffix("_config"), section))
        )
        for name in ("param_offload", "optimizer_offload")
    )
    if weights and _on(weights) and _on(states):
        reader.set("rl.value_model", weights, "apart", "the critic waits in main memory")
    else:
        reader.default("rl.value_model", "model", "a critic is trained beside the actor")
    model = reader.given(TEXT, "reward.reward_model.model_path", "reward_model.model.path")
    if model and reader.value(FLAG, "reward.reward_model.enable", "reward_model.enable", default=False):
        reader.set("rl.reward_model", model)
    else:
        reader.default("rl.reward_model", "none", "rewards come from a function")


SHARED = (
    _set_engine,
    *only(
        lambda job: job.rl.vllm == "colocate",
        Key("rl.vllm_gpu_memory_utilization", f"{_ROLLOUT}.gpu_memory_utilization", NUMBER, 0.5),
        Key("rl.vllm_sleep", f"{_ROLLOUT}.free_cache_engine", FLAG, default=True),
        _set_policy,
    ),
    _set_reference,
    _set_critic,
)
"""The engine takes its share of each GPU and, with `free_cache_engine`, gives it back for training."""


def policy_keys(reading: Reading, value: bool) -> Keys:
    """Weights and states of the actor in main memory."""
    section = f"{ACTOR}.{_section(reading.job)}"
    return {f"{section}.param_offload": value, f"{section}.optimizer_offload": value}


def reference_keys(reading: Reading, value: bool) -> Keys | None:
    """The reference model in main memory."""
    return None if value else {f"{_REF}.{_section(reading.job)}.param_offload": True}
