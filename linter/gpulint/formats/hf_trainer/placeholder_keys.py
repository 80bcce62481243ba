"""Keys whose values another program fills in (`${BATCH}`): what stands in their place, and that it does.

Batch, length and model stay unknown: nothing is estimated from a number that nobody stated. Every other key counts as
absent, and the field that it would have set says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.arguments import Arguments, Given
    from ..core.format import JobBuilder

MICRO_BATCH = ("per_device_train_batch_size", "per_gpu_train_batch_size", "micro_batch_size")
LENGTHS = (
    "max_length", "max_seq_length", "max_seq_len", "block_size", "model_max_length", "max_sequence_length",
    "data_max_length", "seq_length", "sequence_length", "sequence_len", "cutoff_len", "max_completion_length",
)  # fmt: skip

_FIELDS = {
    "gradient_accumulation_steps": "gradient_accumulation_steps", "optim": "optimizer.name",
    "optimizer": "optimizer.name", "bf16": "precision.autocast", "fp16": "precision.autocast",
    "gradient_checkpointing": "activation_checkpointing", "activation_checkpointing": "activation_checkpointing",
    "attn_implementation": "attention", "flash_attn": "attention", "flash_attention": "attention",
    "lora_r": "adapter.r", "lora_rank": "adapter.r", "lora_alpha": "adapter.alpha", "use_peft": "method",
    "lora_target_modules": "adapter.targets", "lora_target": "adapter.targets", "finetuning_type": "method",
    "adapter": "method", "quantization_bit": "weights.quantization", "load_in_4bit": "weights.quantization",
    "load_in_8bit": "weights.quantization", "packing": "packing", "sample_packing": "packing",
    "use_liger_kernel": "loss.kernel", "torch_compile": "compile", "dtype": "weights.dtype",
    "torch_dtype": "weights.dtype", "num_generations": "rl.generations", "deepspeed": "parallelism.zero",
    "fsdp": "parallelism.fsdp",
}  # fmt: skip
"""Keys of Trainer style configs -> the Job field that each sets."""


def settle(builder: JobBuilder, arguments: Arguments) -> None:
    """Make batch and length None where they are blank, and note at other fields what stands in; called last."""
    batch, length = arguments.blank(*MICRO_BATCH), arguments.blank(*LENGTHS)
    if batch is not None and arguments.integer(*MICRO_BATCH, least=1) is None:
        _unknown(builder, "micro_batch_size", batch)
    if length is not None and arguments.integer(*LENGTHS, least=1) is None:
        _unknown(builder, "sequence_length", length)
        if length.key == "max_completion_length":
            _unknown(builder, "rl.completion_length", length)
    for key, field in _FIELDS.items():
        given = arguments.blank(key)
        origin = builder.job.origins.get(field)
        if given is not None and origin is not None and origin.kind in ("default", "derived"):
            note = f"{origin.note}, as {given.key} is {given.value}".lstrip(", ")
            builder.job.origins[field] = origin._replace(kind="assumed", note=note)


def _unknown(builder: JobBuilder, field: str, given: Given) -> None:
    builder.assumed(field, None, f"{given.key} is {given.value}, which is filled in when the job starts")
