"""Megatron as trainers of reinforcement learning run it: 16-bit weights, float32 main weights over the ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....upstream import megatron
from ....upstream.stack import Stack
from ..bindings.kinds import FLAG, NUMBER, POSITIVE, TEXT
from ..bindings.rows import LEAVE, Default, Fixed, Key, Written

if TYPE_CHECKING:
    from typing import Any

    from ....job.job import Job
    from ..bindings.reader import Reader
    from ..bindings.rows import Row, Step

OFFLOAD = "parallelism.zero.offload_optimizer."
DEGREES = {
    "parallelism.tensor": "tensor_model_parallel_size",
    "parallelism.pipeline": "pipeline_model_parallel_size",
    "parallelism.context": "context_parallel_size",
    "parallelism.expert": "expert_model_parallel_size",
    "parallelism.expert_tensor": "expert_tensor_parallel_size",
}
"""Job field -> Megatron's name of the degree."""


def is_megatron(job: Job) -> bool:
    """Whether Megatron's model code trains."""
    return Stack(job).runs(megatron.NAME)


def degrees(section: str, back: Any = None) -> tuple[Row, ...]:
    """The degrees of parallelism under Megatron's names, each 1 by default; that of the experts' tensors the rest's."""
    return tuple(
        Key(field, f"{section}.{name}", POSITIVE, None if field.endswith("expert_tensor") else 1, back=back)
        for field, name in DEGREES.items()
    )


def megatron_optimizer(*, distributed: str = "", reduce: str = "", narrow: str = "bfloat16") -> tuple[Row, ...]:
    """Megatron's mixed precision optimizer, whose states and main weights are divided over the data parallel ranks.

    `distributed` is the tool's key of `use_distributed_optimizer`, `reduce` that of `grad_reduce_in_fp32`, without
    which gradients are reduced in `narrow`.
    """
    zero = "parallelism.zero.stage"
    return (
        Fixed("precision.autocast", None),
        Fixed("precision.master_weights", Default(True, "Megatron's mixed-precision optimizer")),
        *((Key("precision.gradients", reduce, FLAG, "float32", {True: "float32", False: narrow}),) if reduce else ()),
        Fixed("parallelism.fsdp", None),
        Fixed("parallelism.zero.library", "megatron"),
        Key(zero, distributed, FLAG, default=1, to={True: 1, False: 0})
        if distributed
        else Fixed(zero, Default(1, "use_distributed_optimizer")),
    )


def offloaded_optimizer(cpu: str, fraction: str, *, usual: float) -> Step:
    """The optimizer in main memory, whole or by its share (`usual` where the file says none)."""

    def step(reader: Reader) -> None:
        on, share = reader.given(FLAG, cpu), reader.given(NUMBER, fraction)
        if on and on.value and (share.value if share else usual) > 0:
            reader.set(f"{OFFLOAD}device", on, "cpu")
            if share:
                reader.set(f"{OFFLOAD}ratio", share, float(min(1, share.value)))

    return step


def recompute(key: str, *, default: Any, silent: Any = LEAVE) -> tuple[Row, ...]:
    """`recompute_granularity`: whole layers, or what lies inside attention; `silent` is for another word or a null."""
    none = silent if silent is LEAVE else Written(silent)
    kept = Default("core_attention", "recompute_modules core_attn")
    return (
        Key(
            "activation_checkpointing", key, TEXT, default, {"full": "full", "selective": "selective"},
            other=none, null=none,
        ),
        Fixed("checkpoint_policy", kept, when=lambda job: job.activation_checkpointing == "selective"),
    )  # fmt: skip
