"""Facts about how a batch and the weights divide over the ranks."""

from __future__ import annotations

from typing import Any

from ..expression import UNKNOWN
from .facts import Facts, fact

_GLOBAL_BATCH = {
    "megatron": ("global-batch-size", "global_batch_size", "MODEL_ARGS.--global-batch-size"),
    "litgpt": ("train.global_batch_size",),
    "llm_foundry": ("global_train_batch_size",),
    "torchtitan": ("training.global_batch_size",),
    "nemo_automodel": ("step_scheduler.global_batch_size",),
    "nemo_rl": ("policy.train_global_batch_size",),
    "deepspeed": ("train_batch_size",),
    "gpt_neox": ("train_batch_size", "train-batch-size"),
    "olmo": ("global_train_batch_size",),
    "ms_swift": ("global_batch_size",),
}
"""Format -> the keys of its global batch size, in samples."""


@fact("batch.stated", type="whole number")
def _global(facts: Facts) -> Any:
    """The global batch size that the config states, in samples."""
    for key in _GLOBAL_BATCH.get(facts.reading.format, ()):
        value = facts.get(f"config.{key}")
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return UNKNOWN


@fact("zero.init_is_a_guess", type="true or false")
def _guessed(facts: Facts) -> Any:
    """Whether no file tells the release that decides if ZeRO-3 divides the weights as they are made."""
    return "parallelism.zero.init" in facts.job.unstated


@fact("replicas", type="whole number")
def _replicas(facts: Facts) -> Any:
    """Data-parallel replicas: GPUs divided by tensor x pipeline x context parallel size; null where they do not
    divide."""
    job = facts.job
    whole, rest = divmod(job.world_size, job.model_shards)
    return None if rest or not whole else whole


@fact("batch.samples", type="whole number")
def _samples(facts: Facts) -> Any:
    """Samples that one micro batch of every replica takes: micro batch size x replicas."""
    replicas = facts.get("replicas")
    if facts.job.micro_batch_size is None or not isinstance(replicas, int):
        return UNKNOWN
    return facts.job.micro_batch_size * replicas


@fact("model_shards", type="whole number")
def _shards(facts: Facts) -> Any:
    """GPUs that share one replica: tensor x pipeline x context parallel size."""
    return facts.job.model_shards


@fact("pipeline.microbatches", type="whole number")
def _microbatches(facts: Facts) -> Any:
    """Micro batches that go through the pipeline in a step."""
    plan = facts.job.parallelism
    return plan.microbatches or facts.job.gradient_accumulation_steps


@fact("model.latent")
def _latent(facts: Facts) -> Any:
    """Whether attention caches one latent for all heads (multi-head latent attention)."""
    return UNKNOWN if facts.model is None else bool(facts.model.shape.kv_lora_rank)


@fact("model.kv_heads_widest", type="whole number")
def _widest(facts: Facts) -> Any:
    """The most key/value heads of any layer."""
    if facts.model is None:
        return UNKNOWN
    shape = facts.model.shape
    return max((*shape.layer_kv_heads, shape.kv_heads or 0)) or UNKNOWN
