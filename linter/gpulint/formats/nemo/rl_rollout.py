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


def set_gpus(reader: Reader) -> None:
    """The GPUs that train: those of the cluster without the ones set aside for generation."""
    each, nodes = reader.given(POSITIVE, "cluster.gpus_per_node"), reader.given(POSITIVE, "cluster.num_nodes")
    stated: Stated | None = None
    if each:
        count = nodes.value if nodes else 1
        aside = _aside(reader, each.value, count)
        note = f"GPUs x {count} nodes" + (f", {aside} of them only generate" if aside else "")
        if each.value * count > aside:
            stated = Stated(each.value * count - aside, each.entry, each.key, note, group=aside > 0)
        if reader.project.nodes is None:
            reader.bind((Key("hardware.nodes", "cluster.num_nodes", POSITIVE, 1),))
    set_hardware(reader, reader.project, stated, sharded=True)


def _aside(reader: Reader, gpus: int, nodes: int) -> int:
    """GPUs that only generate (`colocated.enabled: false`): of one node some, else whole nodes."""
    if reader.value(FLAG, f"{_COLOCATED}.enabled", default=True):
        return 0
    own_nodes = reader.value(POSITIVE, f"{_COLOCATED}.resources.num_nodes", default=1)
    own_gpus = reader.value(POSITIVE, f"{_COLOCATED}.resources.gpus_per_node", default=gpus)
    return int((own_nodes if nodes > 1 else 1) * own_gpus)


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
