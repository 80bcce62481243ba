"""LLaMA-Factory with `USE_MCA=1`: the same file with arguments of Megatron beside them.

The environment variable is not in the file; a parallel size under Megatron's name gives it away. Facts from
llamafactory 0.9.5 (`hparams/training_args.py`, `examples/megatron*/*.yaml`) and Megatron-LM's
DistributedDataParallel with the distributed optimizer: bf16 weights; fp32 main parameters,
gradients and states, sharded over the data-parallel ranks like ZeRO-1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.arguments import Arguments
    from ..hf_trainer.training_arguments import Run

_DEGREES = (
    ("parallelism.tensor", "tensor_model_parallel_size"),
    ("parallelism.pipeline", "pipeline_model_parallel_size"),
    ("parallelism.context", "context_parallel_size"),
    ("parallelism.expert", "expert_model_parallel_size"),
)
_ENDS = (
    ("parallelism.first_stage_layers", "decoder_first_pipeline_num_layers"),
    ("parallelism.last_stage_layers", "decoder_last_pipeline_num_layers"),
    ("parallelism.expert_tensor", "expert_tensor_parallel_size"),
)


def is_megatron(arguments: Arguments) -> bool:
    """Whether the file is written for Megatron; its further keys are Megatron's then, and none is unknown."""
    return "tensor_model_parallel_size" in arguments or "pipeline_model_parallel_size" in arguments


def set_megatron(run: Run) -> None:
    """Degrees, main parameters, distributed optimizer and recomputation."""
    builder, arguments = run.builder, run.arguments
    product = 1
    for path, key in _DEGREES:
        given = arguments.integer(key, least=1)
        if given:
            run.put(path, given)
            product *= given.value if path != "parallelism.expert" else 1
    chunks = arguments.integer("virtual_pipeline_model_parallel_size", least=1)
    if chunks:
        run.put("parallelism.virtual_stages", chunks)
    for path, key in _ENDS:
        given = arguments.integer(key, least=1)
        if given:
            run.put(path, given)
    sequence = arguments.flag("sequence_parallel")
    if sequence:
        run.put("parallelism.sequence", sequence)
    if run.project.gpus is None:
        note = "the parallel degrees; the data-parallel degree is up to the launch"
        builder.derived("hardware.gpus", max(product, builder.job.parallelism.expert), note, "parallelism.tensor")
    if builder.job.precision.autocast:
        builder.derived(
            "weights.dtype", builder.job.precision.autocast, "Megatron's 16-bit weights", "precision.autocast"
        )
        builder.derived("precision.master_weights", True, "Megatron keeps fp32 main parameters", "weights.dtype")
        builder.derived("precision.gradients", "float32", "Megatron accumulates gradients in fp32", "weights.dtype")
        builder.derived("precision.autocast", None, "Megatron casts its weights instead", "weights.dtype")
    distributed = arguments.flag("use_distributed_optimizer")
    if distributed and distributed.value:
        run.put("parallelism.zero.stage", distributed, 1, "sharded like ZeRO-1")
        builder.derived("parallelism.zero.library", "megatron", "Megatron's gradient buffer", "parallelism.zero.stage")
    recompute = arguments.text("recompute_granularity")
    if recompute:
        run.put("activation_checkpointing", recompute, "full" if recompute.value == "full" else "selective")
        builder.default("checkpoint_policy", "core_attention", "Megatron makes the inside of attention again")
    else:
        builder.default("activation_checkpointing", "none", "recompute_granularity null: default of Megatron")
