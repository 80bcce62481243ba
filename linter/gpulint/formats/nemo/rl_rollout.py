"""GPUs of a NeMo RL config and how training and generation share them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.world_size import Stated, set_hardware
from .rl_policy import DTENSOR, MEGATRON, uses_megatron

if TYPE_CHECKING:
    from ..core.format import Project
    from ..core.sections import Filling, Sections

_ENGINES = {
    "vllm": "policy.generation.vllm_cfg.gpu_memory_utilization",
    "sglang": "policy.generation.sglang_cfg.mem_fraction_static",
    "trtllm": "policy.generation.trtllm_cfg.gpu_memory_utilization",
}
"""The engine -> the key of its share of a GPU."""

ONLINE = frozenset({"grpo", "ppo", "distillation"})


def set_hardware_of_training(filling: Filling, values: Sections, project: Project) -> None:
    """The GPUs that train: those of the cluster without the ones set aside for generation; then the parallel sizes."""
    builder = filling.builder
    each = values.integer("cluster.gpus_per_node", least=1)
    nodes = values.integer("cluster.num_nodes", least=1)
    stated: Stated | None = None
    if each:
        count = nodes.value if nodes else 1
        own, note = _aside(values, each.value, count)
        total = each.value * count - own
        if total > 0:
            stated = Stated(total, each.entry, each.key, f"GPUs x {count} nodes{note}")
        if project.nodes is None:
            filling.fill("hardware.nodes", nodes, 1)
    set_hardware(builder, project, stated, sharded=True)
    sizes = {
        "tensor": (f"{MEGATRON}.tensor_model_parallel_size", f"{DTENSOR}.tensor_parallel_size"),
        "pipeline": (f"{MEGATRON}.pipeline_model_parallel_size", ""),
        "context": (f"{MEGATRON}.context_parallel_size", f"{DTENSOR}.context_parallel_size"),
        "expert": (f"{MEGATRON}.expert_model_parallel_size", f"{DTENSOR}.expert_parallel_size"),
        "expert_tensor": (f"{MEGATRON}.expert_tensor_parallel_size", ""),
        "first_stage_layers": (f"{MEGATRON}.num_layers_in_first_pipeline_stage", ""),
        "last_stage_layers": (f"{MEGATRON}.num_layers_in_last_pipeline_stage", ""),
        "virtual_stages": (f"{MEGATRON}.virtual_pipeline_model_parallel_size", ""),
    }
    number = 0 if uses_megatron(values) else 1
    for name, keys in sizes.items():
        given = values.integer(keys[number], least=1) if keys[number] else None
        default = None if name in ("expert_tensor", "first_stage_layers", "last_stage_layers") else 1
        filling.fill(f"parallelism.{name}", given, default)
    sequence = values.flag(f"{MEGATRON if number == 0 else DTENSOR}.sequence_parallel")
    filling.fill("parallelism.sequence", sequence, False)


def _aside(values: Sections, gpus: int, nodes: int) -> tuple[int, str]:
    """GPUs that only generate (`colocated.enabled: false`), and a note; of one node some, else whole nodes."""
    colocated = values.flag("policy.generation.colocated.enabled")
    if colocated is None or colocated.value:
        return 0, ""
    own_nodes = values.integer("policy.generation.colocated.resources.num_nodes", least=1)
    own_gpus = values.integer("policy.generation.colocated.resources.gpus_per_node", least=1)
    aside = (own_nodes.value if own_nodes and nodes > 1 else 1) * (own_gpus.value if own_gpus else gpus)
    return aside, f", {aside} of them only generate"


def set_generation(filling: Filling, values: Sections, objective: str) -> None:
    """Fill `rl.*`. The engine sleeps while the policy is trained, whose weights and states wait in main memory while
    it generates; the reference model stays there but for its own forward pass.
    """
    builder = filling.builder
    builder.derived("rl.reference_model", False, "its weights are in main memory and swapped in")
    if objective == "ppo":
        builder.derived("rl.value_model", "apart", "it is offloaded while the policy is trained")
    if objective not in ONLINE:
        builder.default("rl.vllm", None)
        return
    for path, keys in (
        ("rl.generations", ("grpo.num_generations_per_prompt", "ppo.num_generations_per_prompt",
                            "distillation.num_generations_per_prompt")),
        ("rl.prompt_length", ("data.max_input_seq_length",)),
        ("rl.completion_length", ("policy.generation.max_new_tokens",)),
    ):  # fmt: skip
        given = values.integer(*keys, least=1)
        if given:
            filling.put(path, given)
    colocated = values.flag("policy.generation.colocated.enabled")
    backend = values.text("policy.generation.backend")
    if colocated and not colocated.value:
        filling.put("rl.vllm", colocated, "server")
        return
    if backend and backend.value not in _ENGINES:
        filling.nothing("rl.vllm", backend, "the training framework generates itself")
        return
    if colocated:
        filling.put("rl.vllm", colocated, "colocate")
    else:
        builder.default("rl.vllm", "colocate")
    share = values.number(_ENGINES[backend.value if backend else "vllm"])
    if share:
        filling.put("rl.vllm_gpu_memory_utilization", share)
    else:
        builder.default("rl.vllm_gpu_memory_utilization", None)
    builder.default("rl.vllm_sleep", True, "the engine sleeps while the policy is trained")
    builder.default("rl.policy_offload", True, "the policy is moved to main memory before the engine wakes")
