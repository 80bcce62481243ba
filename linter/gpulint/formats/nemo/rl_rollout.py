"""GPUs of a NeMo RL config and how training and generation share them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.bindings.kinds import FLAG, NUMBER, POSITIVE, TEXT
from ..core.bindings.rows import Default, Derived, Fixed, Key, only
from ..core.world_size import Stated, set_hardware

if TYPE_CHECKING:
    from ...job.job import Job
    from ..core.bindings.reader import Reader
    from ..core.format import Reading
    from ..core.key_changes import Keys

_ENGINES = {
    "vllm": "policy.generation.vllm_cfg.gpu_memory_utilization",
    "sglang": "policy.generation.sglang_cfg.mem_fraction_static",
    "trtllm": "policy.generation.trtllm_cfg.gpu_memory_utilization",
}
"""The engine -> the key of its share of a GPU."""

_COLOCATED = "policy.generation.colocated"
_REWARD = "env.reward_model"


def set_gpus(reader: Reader) -> None:
    """The GPUs that train: those of the cluster without the ones set aside for other roles."""
    each, nodes = reader.given(POSITIVE, "cluster.gpus_per_node"), reader.given(POSITIVE, "cluster.num_nodes")
    stated: Stated | None = None
    if each:
        count = nodes.value if nodes else 1
        aside = _aside(reader, each.value, count)
        note = f"GPUs x {count} nodes" + (f", {aside} of them do not train" if aside else "")
        if each.value * count > aside:
            stated = Stated(each.value * count - aside, each.entry, each.key, note, group=aside > 0)
        if reader.project.nodes is None:
            reader.bind((Key("hardware.nodes", "cluster.num_nodes", POSITIVE, 1),))
    set_hardware(reader, reader.project, stated, sharded=True)
    if reader.job.hardware.gpus and _has_others(reader):
        note = "teachers or environments have nodes of the cluster that their launch script counts"
        reader.assumed("hardware.gpus", reader.job.hardware.gpus, note)


def _has_others(reader: Reader) -> bool:
    """Whether teachers or NeMo Gym's models may have nodes of their own (`_spinup_nemo_gym`, `opd_teacher_nodes`).

    The judges of NeMo Gym are servers that the launch script places, whatever the config counts.
    """
    return any(
        reader.value(FLAG, key, default=False)
        for key in ("on_policy_distillation.non_colocated_teachers.enabled", "env.should_use_nemo_gym")
    )


def _aside(reader: Reader, gpus: int, nodes: int) -> int:
    """GPUs that do not train: those of a reward model, and with `colocated.enabled: false` those that only generate.

    On one node each role has some of its GPUs. Over several a reward model has nodes of its own; so has generation,
    unless one node is left for it and training (`algorithms/grpo.py` `setup`).
    """
    rewarding = reader.value(FLAG, f"{_REWARD}.enabled", default=False)
    reward = reader.value(POSITIVE, f"{_REWARD}.resources.gpus_per_node", default=0) if rewarding else 0
    reward_nodes = reader.value(POSITIVE, f"{_REWARD}.resources.num_nodes", default=1) if rewarding else 0
    aside = reward if nodes == 1 else reward_nodes * gpus
    if reader.value(FLAG, f"{_COLOCATED}.enabled", default=True):
        return int(aside)
    own_nodes = reader.value(POSITIVE, f"{_COLOCATED}.resources.num_nodes", default=1)
    own_gpus = reader.value(POSITIVE, f"{_COLOCATED}.resources.gpus_per_node", default=gpus)
    alone = nodes == 1 or nodes - reward_nodes == 1
    return int(aside + (own_gpus if alone else own_nodes * own_gpus))


def _set_engine(reader: Reader) -> None:
    """The engine on the policy's GPUs, and its share of them."""
    colocated = reader.given(FLAG, f"{_COLOCATED}.enabled")
    backend = reader.given(TEXT, "policy.generation.backend")
    if colocated and not colocated.value:
        reader.set("rl.vllm", colocated, "server")
        return
    if backend and backend.value not in _ENGINES:
        reader.set("rl.vllm", backend, None, "the training framework generates itself")
        return
    if colocated:
        reader.set("rl.vllm", colocated, "colocate")
    share = Key("rl.vllm_gpu_memory_utilization", _ENGINES[backend.value if backend else "vllm"], NUMBER, None)
    reader.bind((Fixed("rl.vllm", "colocate"), share))


def _is_online(job: Job) -> bool:
    return job.objective in ("grpo", "ppo", "distillation")


GENERATION = (
    Fixed("rl.reference_model", Derived(False, "its weights are in main memory and swapped in")),
    Fixed(
        "rl.value_model", Derived("apart", "it is offloaded while the policy is trained"),
        when=lambda job: job.objective == "ppo",
    ),
    *only(
        _is_online,
        Key(
            "rl.generations",
            tuple(f"{name}.num_generations_per_prompt" for name in ("grpo", "ppo", "distillation")), POSITIVE,
            adds=False,
        ),
        Key("rl.prompt_length", "data.max_input_seq_length", POSITIVE),
        Key("rl.completion_length", "policy.generation.max_new_tokens", POSITIVE),
        _set_engine,
    ),
    Fixed("rl.vllm", None),
    *only(
        lambda job: job.rl.vllm == "colocate",
        Fixed("rl.vllm_sleep", Default(True, "the engine sleeps while the policy is trained")),
        Fixed("rl.policy_offload", Default(True, "the policy is moved to main memory before the engine wakes")),
    ),
)  # fmt: skip
"""The engine sleeps while the policy is trained, whose weights and states wait in main memory while it generates; the
reference model stays there but for its own forward pass.
"""


def share_keys(reading: Reading, value: float) -> Keys | None:
    """The engine's share of a GPU, where it is on the policy's."""
    entry = reading.config.root.find("policy.generation.backend")
    key = _ENGINES.get(str(entry.value.value) if entry is not None else "vllm")
    return {key: value} if key and reading.job.rl.vllm == "colocate" else None
