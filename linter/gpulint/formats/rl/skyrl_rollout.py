"""Batches of a SkyRL run, and what stands beside its policy while that trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.sections import Filling, Sections

_PROMPT, _ANSWER, _SAMPLES, _MINI = 512, 1024, 5, 256
"""What upstream fills in: prompt and answer lengths, samples per prompt, prompts per step of the optimizer."""


def set_batches(filling: Filling, values: Sections) -> None:
    """Rows of prompt and answer; a mini batch counts prompts, each with its samples.

    With `max_tokens_per_microbatch` rows fill a micro batch of that many tokens. In several turns what the model reads
    is bounded by `generator.max_input_length`.
    """
    builder = filling.builder
    job, plan = builder.job, builder.job.parallelism
    prompt = values.integer("generator.max_input_length", "trainer.max_prompt_length", least=1)
    answer = values.integer("generator.sampling_params.max_generate_length", least=1)
    filling.fill("rl.prompt_length", prompt, _PROMPT)
    filling.fill("rl.completion_length", answer, _ANSWER)
    filling.fill("rl.generations", values.integer("generator.n_samples_per_prompt", least=1), _SAMPLES)
    length = (job.rl.prompt_length or _PROMPT) + (job.rl.completion_length or _ANSWER)
    if answer:
        filling.put("sequence_length", answer, length, "prompt and answer")
    else:
        builder.default("sequence_length", length)
    micro = values.integer("trainer.micro_train_batch_size_per_gpu", least=1)
    tokens = values.integer("trainer.max_tokens_per_microbatch", least=1)
    if tokens:
        filling.put("micro_batch_size", tokens, max(1, tokens.value // length), "rows of full length in its tokens")
    else:
        filling.fill("micro_batch_size", micro, 1)
    packed = values.flag("trainer.remove_microbatch_padding", "trainer.use_sample_packing")
    if job.attention == "sdpa":
        builder.derived("packing", False, "packing needs flash attention", "attention")
    else:
        filling.fill("packing", packed, True)
    builder.default("padded", False)
    ranks = max(1, (job.hardware.gpus or 1) // (plan.tensor * plan.pipeline * plan.context))
    mini = values.integer("trainer.policy_mini_batch_size", least=1)
    rows = (mini.value if mini else _MINI) * (job.rl.generations or _SAMPLES)
    steps = max(1, rows // (ranks * (job.micro_batch_size or 1)))
    note = f"mini batch of {rows} rows over {ranks} ranks"
    if mini:
        filling.put("gradient_accumulation_steps", mini, steps, note)
    else:
        builder.default("gradient_accumulation_steps", steps, note)
    builder.default("evaluation.micro_batch_size", None, "it generates, or scores without a backward pass")


def set_rollout(filling: Filling, values: Sections) -> None:
    """The engine sleeps, and reference model and critic wait in main memory, where all share the GPUs.

    WorkerDispatch brings one model of a colocated group to the GPU at a time; one that is not colocated has GPUs of its
    own.
    """
    builder = filling.builder
    together = values.flag("trainer.placement.colocate_all")
    shared = together is None or together.value
    where = "colocate" if shared else "server"
    filling.fill("rl.vllm", together._replace(value=where) if together else None, where, "colocate_all")
    if shared:
        share = values.number("generator.inference_engine.gpu_memory_utilization", "generator.gpu_memory_utilization")
        filling.fill("rl.vllm_gpu_memory_utilization", share, 0.8)
        builder.default("rl.vllm_sleep", True, "colocated engines sleep while the policy trains")
        builder.default("rl.policy_offload", True, "the policy waits in main memory while the engines generate")
    builder.default("rl.reference_model", False, "in main memory, or on GPUs of its own, while the policy trains")
    if builder.job.objective == "ppo":
        builder.default("rl.value_model", "apart", "in main memory, or on GPUs of its own, while the policy trains")
        builder.default("rl.reward_model", "none", "rewards come from environments")
