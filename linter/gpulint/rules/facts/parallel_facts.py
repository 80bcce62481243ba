"""Facts about how a batch and the weights divide over the ranks."""

from __future__ import annotations

from typing import Any

from ...upstream import trl
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
    "openrlhf": ("train_batch_size", "train.batch_size"),
}
"""Format -> the keys of its global batch size, in samples."""


@fact("global_batch_size", type="whole number")
def _global(facts: Facts) -> Any:
    """The global batch size that the config sets, in samples."""
    for key in _GLOBAL_BATCH.get(facts.reading.format, ()):
        value = facts.get(f"config.{key}")
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return UNKNOWN


@fact("zero.init_assumed", type="true or false")
def _init_assumed(facts: Facts) -> Any:
    """Whether it is assumed that ZeRO-3 partitions weights at load: it depends on a release that no file states."""
    return "parallelism.zero.init" in facts.job.unstated


@fact("replicas", type="whole number")
def _replicas(facts: Facts) -> Any:
    """Data-parallel replicas: GPUs / (tensor x pipeline x context parallel size); null if that is not
    a whole number."""
    job = facts.job
    whole, rest = divmod(job.world_size, job.model_shards)
    return None if rest or not whole else whole


@fact("micro_batch.global_samples", type="whole number")
def _samples(facts: Facts) -> Any:
    """Samples of one micro batch over all replicas: micro batch size x replicas."""
    replicas = facts.get("replicas")
    if facts.job.micro_batch_size is None or not isinstance(replicas, int):
        return UNKNOWN
    return facts.job.micro_batch_size * replicas


@fact("rl.grouped_batch", type="whole number")
def _grouped_batch(facts: Facts) -> Any:
    """Completions that whole groups of GRPO have to fill; unknown for releases that have no such rule."""
    job, gpus, release = facts.job, facts.get("gpus"), facts.job.versions.get(trl.NAME)
    if not isinstance(gpus, int) or not job.micro_batch_size or not trl.SAMPLES_GROUPS.at(release):
        return UNKNOWN
    steps = job.gradient_accumulation_steps if trl.GROUPS_FILL_STEPS.at(release) else 1
    return job.micro_batch_size * steps * gpus


@fact("rl.group_key")
def _group_key(facts: Facts) -> Any:
    """The key of the completions of a prompt, where the trainer refuses groups of one; null where it does not."""
    form, objective = facts.reading.format, facts.job.objective
    if form in ("hf_trainer", "axolotl", "ms_swift", "llamafactory") and objective == "grpo":
        return "num_generations"
    keys = ("advantage_estimator", "algo.advantage.estimator")
    estimator = next((value for key in keys if (value := facts.get(f"config.{key}")) is not None), None)
    if form == "openrlhf" and estimator in ("rloo", "reinforce_baseline", "group_norm", "dr_grpo"):
        return "n_samples_per_prompt"
    return None


@fact("role_group.key")
def _role_group_key(facts: Facts) -> Any:
    """The key that says on how many GPUs a group of ranks trains, where the job has more; null where it has not."""
    hardware, origin = facts.job.hardware, facts.job.origins.get("hardware.gpus")
    granted = facts.job.origins.get("hardware.granted_gpus")
    if origin is None or granted is None or not hardware.granted_gpus or origin.kind != "file":
        return None
    return origin.key if hardware.granted_gpus > (hardware.gpus or 1) else None


@fact("role_group.there", type="whole number")
def _role_group_there(facts: Facts) -> Any:
    """The GPUs that the job has for all groups of ranks."""
    return facts.job.hardware.granted_gpus if facts.get("role_group.key") is not None else UNKNOWN


@fact("role_group.peak", "bytes")
def _role_group_peak(facts: Facts) -> Any:
    """What the fullest GPU would need if the group had all of them."""
    there = facts.get("role_group.there")
    changes = {"hardware.gpus": there, "parallelism.data": None}
    return facts.peak_if(changes) if isinstance(there, int) else UNKNOWN


@fact("model_shards", type="whole number")
def _shards(facts: Facts) -> Any:
    """GPUs of one model replica: tensor x pipeline x context parallel size."""
    return facts.job.model_shards


@fact("pipeline.microbatches", type="whole number")
def _microbatches(facts: Facts) -> Any:
    """Micro batches per step that go through the pipeline."""
    plan = facts.job.parallelism
    return plan.microbatches or facts.job.gradient_accumulation_steps


_CHUNKS = (
    "num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank",
    "virtual_pipeline_model_parallel_size", "virtual_pipeline_parallel_size",
)  # fmt: skip


@fact("pipeline.chunk_key")
def _chunk_key(facts: Facts) -> Any:
    """The key that gives the interleaved schedule its chunks, more than one a rank."""
    sections = ("", "model.", "MODEL_ARGS.--")
    for name in (form for chunk in _CHUNKS for form in (chunk, chunk.replace("_", "-"))):
        for section in sections:
            value = facts.get(f"config.{section}{name}")
            if isinstance(value, int) and not isinstance(value, bool) and value > (0 if "layers" in name else 1):
                return name
    return UNKNOWN


@fact("model.mla")
def _mla(facts: Facts) -> Any:
    """Whether the model uses multi-head latent attention (MLA), which caches one latent for all heads."""
    return UNKNOWN if facts.model is None else bool(facts.model.shape.kv_lora_rank)


@fact("model.max_kv_heads", type="whole number")
def _max_kv_heads(facts: Facts) -> Any:
    """Key/value heads of the layer that has most."""
    if facts.model is None:
        return UNKNOWN
    shape = facts.model.shape
    return max((*shape.layer_kv_heads, shape.kv_heads or 0)) or UNKNOWN
