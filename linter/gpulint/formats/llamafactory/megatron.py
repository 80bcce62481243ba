"""LLaMA-Factory with `USE_MCA=1`: the same file with arguments of Megatron beside them.

The environment variable is not in the file; a parallel size under Megatron's name gives it away. Facts from
llamafactory 0.9.5 (`hparams/training_args.py`, `examples/megatron*/*.yaml`) and Megatron-LM's
DistributedDataParallel with the distributed optimizer: bf16 weights; fp32 main parameters,
gradients and states, sharded over the data-parallel ranks like ZeRO-1.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..core.backends.megatron import DEGREES
from ..core.bindings.kinds import FLAG, POSITIVE, TEXT

if TYPE_CHECKING:
    from ...source.node import Node
    from ..core.bindings.reader import Reader

_SIZES = {
    **DEGREES,
    "parallelism.virtual_stages": "virtual_pipeline_model_parallel_size",
    "parallelism.first_stage_layers": "decoder_first_pipeline_num_layers",
    "parallelism.last_stage_layers": "decoder_last_pipeline_num_layers",
}


def is_megatron(root: Node) -> bool:
    """Whether the file is written for Megatron; its further keys are Megatron's then, and none is unknown."""
    return any(root.entry(f"{name}_model_parallel_size") is not None for name in ("tensor", "pipeline"))


def set_megatron(reader: Reader) -> None:
    """Degrees, main parameters, distributed optimizer and recomputation, over what the Trainer's arguments say."""
    if not is_megatron(reader.document.root):
        return
    job = reader.job
    for field, key in _SIZES.items():
        if given := reader.given(POSITIVE, key):
            reader.set(field, given)
    if sequence := reader.given(FLAG, "sequence_parallel"):
        reader.set("parallelism.sequence", sequence)
    if reader.project.gpus is None:
        plan, note = job.parallelism, "the parallel degrees; the data-parallel degree is up to the launch"
        gpus = max(math.prod((plan.tensor, plan.pipeline, plan.context)), plan.expert)
        reader.derived("hardware.gpus", gpus, note, "parallelism.tensor")
    if job.precision.autocast:
        dtype = job.precision.autocast
        reader.derived("weights.dtype", dtype, "Megatron's 16-bit weights", "precision.autocast")
        for field, value, note in (
            ("master_weights", True, "Megatron keeps fp32 main parameters"),
            ("gradients", "float32", "Megatron accumulates gradients in fp32"),
            ("autocast", None, "Megatron casts its weights instead"),
        ):
            reader.derived(f"precision.{field}", value, note, "weights.dtype")
    if distributed := reader.on("use_distributed_optimizer"):
        reader.set("parallelism.zero.stage", distributed, 1, "sharded like ZeRO-1")
        reader.derived("parallelism.zero.library", "megatron", "Megatron's gradient buffer", "parallelism.zero.stage")
    if recompute := reader.given(TEXT, "recompute_granularity"):
        mode = "full" if recompute.value == "full" else "selective"
        reader.set("activation_checkpointing", recompute, mode)
        reader.default("checkpoint_policy", "core_attention", "Megatron makes the inside of attention again")
    else:
        reader.default("activation_checkpointing", "none", "recompute_granularity null: default of Megatron")
