"""GPUs and parallel sizes of a verl config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.world_size import Stated, set_hardware
from .filling import ACTOR, VerlFilling

if TYPE_CHECKING:
    from ..core.format import Project
    from ..core.sections import Sections


def uses_megatron(values: Sections) -> bool:
    """Whether Megatron trains the actor."""
    strategy = values.text(f"{ACTOR}.strategy")
    return bool(strategy and strategy.value == "megatron")


def set_sizes(filling: VerlFilling, values: Sections, project: Project) -> None:
    """`hardware`, and the degrees of parallelism of the actor."""
    builder = filling.builder
    each = values.integer("trainer.n_gpus_per_node", least=1)
    nodes = values.integer("trainer.nnodes", least=1)
    count = nodes.value if nodes else 1
    stated: Stated | None = None
    if each and (filling.is_stated(each) or filling.is_stated(nodes)):
        given = each if filling.is_stated(each) or nodes is None else nodes
        stated = Stated(each.value * count, given.entry, given.key, f"{each.value} GPUs x {count} nodes")
    set_hardware(builder, project, stated, sharded=True)
    if stated is None and project.gpus is None and each:
        builder.default("hardware.gpus", each.value * count, f"trainer.n_gpus_per_node of {builder.upstream}")
    if nodes and project.nodes is None:
        filling.put("hardware.nodes", nodes)
    if uses_megatron(values):
        section = f"{ACTOR}.megatron"
        for name, key in (
            ("tensor", "tensor_model_parallel_size"),
            ("pipeline", "pipeline_model_parallel_size"),
            ("context", "context_parallel_size"),
            ("expert", "expert_model_parallel_size"),
            ("expert_tensor", "expert_tensor_parallel_size"),
            ("virtual_stages", "virtual_pipeline_model_parallel_size"),
        ):
            default = None if name == "expert_tensor" else 1
            filling.fill(f"parallelism.{name}", values.integer(f"{section}.{key}", least=1), default)
        sequence = values.flag(f"{section}.sequence_parallel")
        filling.fill("parallelism.sequence", sequence, True)
        return
    for name in ("tensor", "pipeline", "expert"):
        builder.default(f"parallelism.{name}", 1)
    ulysses = values.integer(f"{ACTOR}.ulysses_sequence_parallel_size", least=1)
    filling.fill("parallelism.context", ulysses, 1)
    builder.default("parallelism.sequence", False)
