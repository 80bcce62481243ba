"""Objective of an axolotl run, and what preference and online objectives add."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .config import AxolotlConfig

OBJECTIVES = {
    "dpo": "dpo", "ipo": "dpo", "kto": "kto", "orpo": "orpo", "simpo": "simpo", "grpo": "grpo", "gdpo": "grpo",
    "ebft": "ebft",
}  # fmt: skip
"""`rl` -> the Job's objective; IPO is DPO with another loss, GDPO is GRPO with another advantage."""

ONLINE = frozenset({"grpo", "ebft"})

GENERATIONS, COMPLETION_LENGTH = 8, 512
"""`num_generations` and `max_completion_length` of TRL's GRPOConfig (1.9 to 1.16), where axolotl leaves them open."""

PROMPT_LENGTH = 512
"""Prompt tokens where nothing bounds them: the `max_prompt_length` default of trl 0.9 to 0.24, which went away."""


def set_objective(config: AxolotlConfig) -> None:
    """`objective` from `rl`, a reward model switch, or a pretraining data set."""
    keys = config.keys
    rl = keys.text("rl")
    if rl and rl.value in OBJECTIVES:
        config.put("objective", rl, OBJECTIVES[rl.value])
        return
    for key in ("reward_model", "process_reward_model"):
        flag = keys.flag(key)
        if flag and flag.value:
            config.put("objective", flag, "reward")
            return
    pretraining = keys.raw("pretraining_dataset")
    if pretraining and pretraining.value:
        config.put("objective", pretraining, "pretrain")
    else:
        config.builder.default("objective", "sft")


def set_rl(config: AxolotlConfig) -> None:
    """`rl.*` (`setup_reference_model`, `DPOStrategy`, `GRPOStrategy`).

    Without an adapter DPO and KTO keep a frozen copy of the model, unless its log-probabilities are precomputed; GRPO
    keeps one when `trl.beta` (or `rl_beta`) is set and not 0.
    """
    builder, keys, job = config.builder, config.keys, config.builder.job
    objective = job.objective
    if objective in ("dpo", "kto"):
        precomputed = keys.flag("precompute_ref_log_probs")
        if precomputed:
            config.put("rl.precompute_reference", precomputed, precomputed.value)
        else:
            builder.default("rl.precompute_reference", False)
        if job.adapter is not None:
            builder.derived(
                "rl.reference_model", False, "the base model without its adapter is the reference", "method"
            )
        else:
            note = f"{objective.upper()} keeps a frozen copy of the model"
            builder.derived("rl.reference_model", not job.rl.precompute_reference, note, "objective")
        note = "TRL's trainer names the policy's outputs while the reference runs (trl 1.9 `_compute_loss`)"
        builder.derived("rl.reference_apart", True, note, "objective")
    elif objective in ONLINE:
        _online(config)
    elif objective in ("orpo", "simpo"):
        builder.derived("rl.reference_model", False, f"{objective} has no reference model", "objective")


def _online(config: AxolotlConfig) -> None:
    builder, job, trl = config.builder, config.builder.job, config.keys.mapping("trl")
    beta = trl.number("beta") or config.keys.number("rl_beta")
    if beta and beta.value and job.adapter is None:
        config.put("rl.reference_model", beta, True, "beta > 0 needs a frozen copy of the model")
    elif beta and beta.value:
        builder.derived("rl.reference_model", False, "the adapter is switched off instead", "method")
    else:
        builder.derived("rl.reference_model", False, "beta is 0", "objective")
    _count(config, "rl.generations", "num_generations", GENERATIONS)
    _count(config, "rl.completion_length", "max_completion_length", COMPLETION_LENGTH)
    prompt = config.keys.integer("max_prompt_len", least=1)
    if prompt:
        config.put("rl.prompt_length", prompt, prompt.value)
    else:
        builder.assumed("rl.prompt_length", PROMPT_LENGTH, f"nothing bounds prompts; {PROMPT_LENGTH} tokens")
    total = (job.rl.prompt_length or 0) + (job.rl.completion_length or 0)
    builder.derived("sequence_length", total, "prompt and completion", "rl.completion_length")
    _rollout(config)


def _count(config: AxolotlConfig, field: str, key: str, otherwise: int) -> None:
    given = config.keys.mapping("trl").integer(key, least=1)
    if given:
        config.put(field, given, given.value)
    else:
        config.builder.default(field, otherwise, "default of TRL, which axolotl leaves it to")


def _rollout(config: AxolotlConfig) -> None:
    """vLLM beside the trainer: `server` unless `vllm_mode` says colocate (`check_vllm_mode_set`)."""
    builder, trl, vllm = config.builder, config.keys.mapping("trl"), config.keys.mapping("vllm")
    use, mode = trl.flag("use_vllm"), trl.text("vllm_mode")
    if not (use and use.value):
        builder.default("rl.vllm", None)
        return
    if mode:
        config.put("rl.vllm", mode, mode.value)
    else:
        config.put("rl.vllm", use, "server", "vllm_mode is not stated")
    if builder.job.rl.vllm != "colocate":
        return
    share, sleep = vllm.number("gpu_memory_utilization"), trl.flag("vllm_enable_sleep_mode")
    if share:
        config.put("rl.vllm_gpu_memory_utilization", share, share.value)
    else:
        config.default("rl.vllm_gpu_memory_utilization", "vllm.gpu_memory_utilization")
    if sleep:
        config.put("rl.vllm_sleep", sleep, sleep.value)
    else:
        builder.default("rl.vllm_sleep", False)
