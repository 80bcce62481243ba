"""Objective of an axolotl run, and what preference and online objectives add.

Facts from axolotl 0.19.0 (`setup_reference_model`, `DPOStrategy`, `GRPOStrategy`, `check_vllm_mode_set`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.bindings.kinds import ANYTHING, FLAG, NUMBER, POSITIVE, TEXT, Unsaid
from ..core.bindings.reader import by_schema
from ..core.bindings.rows import NEVER, Assumed, Default, Derived, Fixed, Key, Written, only
from ..hf_trainer.trl import ASSUMED_PROMPT, set_vllm

if TYPE_CHECKING:
    from ...job.job import Job
    from ..core.bindings.reader import Reader

_OBJECTIVES = {
    "dpo": "dpo", "ipo": "dpo", "kto": "kto", "orpo": "orpo", "simpo": "simpo", "grpo": "grpo", "gdpo": "grpo",
    "ebft": "ebft",
}  # fmt: skip
"""`rl` -> the Job's objective; IPO is DPO with another loss, GDPO is GRPO with another advantage."""

_TRL = "default of TRL, which axolotl leaves it to"

RL_KEYS = {
    "rl.precompute_reference": "precompute_ref_log_probs",
    "rl.vllm_gpu_memory_utilization": "vllm.gpu_memory_utilization",
    "rl.vllm_sleep": "trl.vllm_enable_sleep_mode",
}
"""What a plan names among that which other objectives read."""

OBJECTIVE = (
    Key("objective", "rl", TEXT, to=_OBJECTIVES, back=NEVER),
    Key("objective", "reward_model", FLAG, to={True: "reward"}, back=NEVER),
    Key("objective", "process_reward_model", FLAG, to={True: "reward"}, back=NEVER),
    Key(
        "objective", "pretraining_dataset", ANYTHING, "sft", lambda data, _: "pretrain" if data else Unsaid.OTHER,
        NEVER, blank=Written("pretrain"),
    ),
)  # fmt: skip
"""A kind of preference or online run, a reward model, or a pretraining data set."""


def _compares(job: Job) -> bool:
    return job.objective in ("dpo", "kto")


def _is_online(job: Job) -> bool:
    return job.objective in ("grpo", "ebft")


def _has_adapter(job: Job) -> bool:
    return job.adapter is not None


def _copy_of_the_model(reader: Reader) -> Derived:
    job = reader.job
    note = f"{job.objective.upper()} keeps a frozen copy of the model"
    return Derived(not job.rl.precompute_reference, note, "objective")


def _set_reference(reader: Reader) -> None:
    """With `trl.beta` (or `rl_beta`) above 0 a run keeps a frozen copy of the model, unless it has an adapter."""
    beta = reader.given(NUMBER, "trl.beta", "rl_beta")
    if beta and beta.value and not _has_adapter(reader.job):
        reader.set("rl.reference_model", beta, True, "beta > 0 needs a frozen copy of the model")
    elif beta and beta.value:
        reader.derived("rl.reference_model", False, "the adapter is switched off instead", "method")
    else:
        reader.derived("rl.reference_model", False, "beta is 0", "objective")


def _set_length(reader: Reader) -> None:
    rl = reader.job.rl
    total = (rl.prompt_length or 0) + (rl.completion_length or 0)
    reader.derived("sequence_length", total, "prompt and completion", "rl.completion_length")


def _set_vllm(reader: Reader) -> None:
    set_vllm(reader, "trl.", "vllm_mode is not stated")


RL = (
    *only(
        _compares,
        Key("rl.precompute_reference", RL_KEYS["rl.precompute_reference"], FLAG, default=False),
        Fixed(
            "rl.reference_model",
            Derived(False, "the base model without its adapter is the reference", "method"),
            when=_has_adapter,
        ),
        Fixed("rl.reference_model", _copy_of_the_model),
        Fixed(
            "rl.reference_apart",
            Derived(
                True, "TRL's trainer names the policy's outputs while the reference runs (trl 1.9 `_compute_loss`)",
                "objective",
            ),
        ),
    ),
    Fixed(
        "rl.reference_model",
        lambda reader: Derived(False, f"{reader.job.objective} has no reference model", "objective"),
        when=lambda job: job.objective in ("orpo", "simpo"),
    ),
    *only(
        _is_online,
        _set_reference,
        Key("rl.generations", "trl.num_generations", POSITIVE, Default(8, _TRL), back=NEVER),
        Key("rl.completion_length", "trl.max_completion_length", POSITIVE, Default(512, _TRL), back=NEVER),
        Key(
            "rl.prompt_length", "max_prompt_len", POSITIVE,
            Assumed(ASSUMED_PROMPT, f"nothing bounds prompts; {ASSUMED_PROMPT} tokens"), back=NEVER,
        ),
        _set_length,
        _set_vllm,
    ),
    *only(
        lambda job: job.rl.vllm == "colocate",
        Key(
            "rl.vllm_gpu_memory_utilization", RL_KEYS["rl.vllm_gpu_memory_utilization"], NUMBER,
            by_schema("axolotl", "vllm.gpu_memory_utilization"),
        ),
        Key("rl.vllm_sleep", RL_KEYS["rl.vllm_sleep"], FLAG, default=False),
    ),
)  # fmt: skip
"""Reference model, lengths, generations and vLLM; 8 completions of 512 tokens are GRPOConfig's (trl 1.9 to 1.16)."""
