"""The Job fields whose place or default an estimate has to name."""

TRAINING = (
    "kind", "model", "objective", "method", "weights.dtype", "weights.quantization", "adapter", "precision.autocast",
    "precision.master_weights", "optimizer.name", "micro_batch_size", "gradient_accumulation_steps", "sequence_length",
    "packing", "padded", "activation_checkpointing", "reentrant", "attention", "loss.kernel", "liger_kernels",
    "compile",
    "evaluation.micro_batch_size", "parallelism.zero", "parallelism.fsdp", "parallelism.tensor", "hardware.gpus",
    "rl.reference_model", "versions",
)  # fmt: skip

INFERENCE = (
    "kind", "model", "weights.dtype", "weights.quantization", "parallelism.tensor", "parallelism.pipeline",
    "hardware.gpus", "inference.engine", "versions",
)  # fmt: skip

ENGINE = (
    "inference.max_model_len", "inference.max_num_seqs", "inference.max_num_batched_tokens", "inference.kv_cache_dtype",
    "inference.gpu_memory_utilization", "inference.enforce_eager", "inference.enable_lora",
)  # fmt: skip


def missing(job, paths):
    """The paths without an origin; a part counts as explained when each of its fields is."""
    return [
        path for path in paths if path not in job.origins and not any(key.startswith(f"{path}.") for key in job.origins)
    ]
